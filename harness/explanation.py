"""What an explained divergence is, as plain data: every report renders the same record.

`explain.py` makes it; terminal, Markdown and HTML only lay it out.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Row(msgspec.Struct, kw_only=True):
    """One field of the two answers, side by side, as text; `differs` marks those that part."""

    field: str
    left: str
    right: str
    differs: bool = False


class TreeNode(msgspec.Struct, kw_only=True):
    """One node of a tree picture.

    `handle` is the number by which both sides know it, `parent` that of its parent (None for the
    root), `depth` its distance from the root. `label` is its tokens as text where a core can be
    inspected, else its span; `slots` its device slots as text. `facts` are short texts such as
    `locked 1`, `hits 2`. `is_concerned`: the divergence is about it.
    """

    handle: int | None
    parent: int | None
    depth: int
    label: str
    slots: str = ""
    facts: list[str] = []
    is_concerned: bool = False


class SideView(msgspec.Struct, kw_only=True):
    """What one side did at the op where they part. A tree is None where it could not be seen.

    `outcome` is the error that ended the op. `calls` are the calls that the op made on the core,
    as text, up to the one that parts.
    """

    name: str
    outcome: str | None = None
    calls: list[str] = []
    findings: list[str] = []
    tree_before: list[TreeNode] | None = None
    tree_after: list[TreeNode] | None = None


class OpLine(msgspec.Struct, kw_only=True):
    """One op of the trace; `touches` are the handles that its calls named or answered."""

    index: int
    text: str
    touches: list[int] = []
    is_concerned: bool = False


class Explanation(msgspec.Struct, kw_only=True):
    """A divergence in words that a porter knows. Handles are numbers that both sides share.

    `kind` and `is_soft` are those of the divergence, `where` is its place, `op_kind` the kind of
    its op. `op_index` is None in the final drain, where `op` names the step, and where no op was
    run; `call` is the call that parts, as text. `rule` is a rule number such as `INS-12` and
    `rule_text` what it says in one sentence; both are None where no rule is known. `guilty` names
    the side that is wrong if it can be told, `verdict` says by what. `config` holds the fields
    that differ from their defaults.

    `op_count` counts the ops of the trace. `ops` are those up to the one that parts; of a long
    trace only the last ones and those that touch `concerned`, so that indices may have gaps.
    `concerned` are the handles of the nodes that the divergence is about. `note` is the trace's.
    """

    pair: tuple[str, str]
    signature: str
    kind: str = "difference"
    is_soft: bool = False
    where: str
    op_index: int | None
    op_kind: str = ""
    op: str
    call: str | None = None
    rows: list[Row] = []
    rule: str | None = None
    rule_text: str | None = None
    guilty: str | None = None
    verdict: str | None = None
    config: dict[str, Any] = {}
    note: str = ""
    op_count: int = 0
    ops: list[OpLine] = []
    concerned: list[int] = []
    sides: list[SideView] = []
