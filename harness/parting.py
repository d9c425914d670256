"""What lies at the place where two observations part: the call, its values side by side, the nodes.

Reads the places that `compare` gives, such as `calls[2].match_prefix.result.device_prefix_len`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from .canonical import HANDLE_FIELDS, HANDLE_LIST_FIELDS
from .compare import NODE_FACTS, SIZE_NAMES, Divergence, first_difference
from .describe import (
    MISSING,
    describe,
    describe_both,
    describe_call,
    describe_end,
    describe_question,
    fields_of,
    is_record,
    named,
    rows_of,
)
from .explanation import Row
from .observation import Observation

ROWS_MAX = 60
"""Of a longer table the rows that differ are kept, and the first others."""

FINE = "ok"
"""What stands for an op or a construction that raised nothing."""

HANDLE_ANSWERS = ("root_node_handle", "mark_write_through_pending")
"""Methods that answer handles outside a record; `match_full_device_prefix` answers one."""


class Parting(msgspec.Struct, kw_only=True):
    """Where two observations part.

    `call` is the call as text and `call_index` its number within the op; None where no call
    parts. `handles` are the nodes that the call or the rows name.
    """

    call: str | None = None
    call_index: int | None = None
    rows: list[Row] = []
    handles: set[int] = set()


def find_parting(found: Divergence, left: Observation | None, right: Observation | None) -> Parting:
    """The place of a divergence in what the two sides showed at its op."""
    parting = _parting_of_kind(found, left, right)
    if not parting.rows:
        texts = describe_both(found.left, found.right)
        parting.rows = [Row(field="value", left=texts[0], right=texts[1], differs=True)]
    if len(parting.rows) > ROWS_MAX:
        spare = ROWS_MAX - sum(row.differs for row in parting.rows)
        first = [row for row in parting.rows if not row.differs][: max(0, spare)]
        kept = {id(row) for row in first}
        parting.rows = [row for row in parting.rows if row.differs or id(row) in kept][:ROWS_MAX]
    return parting


def _parting_of_kind(
    found: Divergence, left: Observation | None, right: Observation | None
) -> Parting:
    if found.kind == "refused":
        texts = [
            FINE if error is None else f"raises {error}" for error in (found.left, found.right)
        ]
        return Parting(rows=[Row(field="built", left=texts[0], right=texts[1], differs=True)])
    if found.kind == "oracle":
        return Parting(rows=_finding_rows(found, left, right))
    if found.kind == "difference" and left is not None and right is not None:
        return _difference(found.where, left, right)
    if found.side is not None:
        texts = [found.where if name == found.side else "went on" for name in found.pair]
        return Parting(rows=[Row(field="worker", left=texts[0], right=texts[1], differs=True)])
    texts = ["went on" if seen is not None else found.where for seen in (left, right)]
    return Parting(rows=[Row(field="side", left=texts[0], right=texts[1], differs=True)])


def _finding_rows(
    found: Divergence, left: Observation | None, right: Observation | None
) -> list[Row]:
    """Every finding of either side; the same one of both sides in one row."""
    told = [
        [(one.oracle, one.message) for one in seen.findings] if seen else []
        for seen in (left, right)
    ]
    rows = []
    for finding in dict.fromkeys([*told[0], *told[1]]):
        oracle, message = finding
        texts = [message if finding in side else MISSING for side in told]
        rows.append(Row(field=oracle, left=texts[0], right=texts[1], differs=texts[0] != texts[1]))
    return rows


def _difference(where: str, left: Observation, right: Observation) -> Parting:
    head = re.match(r"\w+", where)
    match head[0] if head else "":
        case "calls":
            return _in_calls(where, left.calls, right.calls)
        case "outcome":
            ends = [seen.outcome or FINE for seen in (left, right)]
            return Parting(rows=[Row(field="outcome", left=ends[0], right=ends[1], differs=True)])
        case "pool":
            return Parting(rows=_pool_rows(left.pool, right.pool))
        case "sizes":
            sizes = [dict(zip(SIZE_NAMES, seen.sizes, strict=False)) for seen in (left, right)]
            return Parting(rows=rows_of(sizes[0], sizes[1]))
        case "tree":
            return _in_trees(where, left.tree, right.tree)
        case "snapshot":
            return _in_snapshots(where, left.snapshot, right.snapshot)
    return Parting()


# --- Calls --------------------------------------------------------------------------------


def _in_calls(where: str, left: list[Any], right: list[Any]) -> Parting:
    place = re.match(r"calls\[(\d+)\]", where)
    if place is None:
        return _extra_call(left, right)
    index = int(place[1])
    ours, theirs = left[index], right[index]
    handles = {*_call_handles(ours), *_call_handles(theirs)}
    if ours[0] != theirs[0]:
        texts = describe_question(ours), describe_question(theirs)
        row = Row(field=f"calls[{index}]", left=texts[0], right=texts[1], differs=True)
        return Parting(call=None, call_index=index, rows=[row], handles=handles)
    rows = [row for row in _argument_rows(ours, theirs) if row.differs] + _end_rows(ours, theirs)
    return Parting(call=describe_question(ours), call_index=index, rows=rows, handles=handles)


def _extra_call(left: list[Any], right: list[Any]) -> Parting:
    index = min(len(left), len(right))
    longer = left if len(left) > len(right) else right
    text = describe_call(longer[index])
    texts = (text, MISSING) if longer is left else (MISSING, text)
    rows = [
        Row(field="calls", left=str(len(left)), right=str(len(right)), differs=True),
        Row(field=f"calls[{index}]", left=texts[0], right=texts[1], differs=True),
    ]
    handles = set(_call_handles(longer[index]))
    return Parting(
        call=describe_question(longer[index]), call_index=index, rows=rows, handles=handles
    )


def _argument_rows(left: list[Any], right: list[Any]) -> list[Row]:
    ours, theirs = (dict(named(call[0], call[1])) for call in (left, right))
    return rows_of(ours, theirs)


def _end_rows(left: list[Any], right: list[Any]) -> list[Row]:
    ends = left[2:3], right[2:3]
    if all(end and end[0][0] == "ok" for end in ends):
        rows = rows_of(left[2][1], right[2][1], "result")
        return rows + rows_of(left[3:], right[3:], "filled")
    texts = describe_end(left), describe_end(right)
    return [Row(field="answer", left=texts[0], right=texts[1], differs=texts[0] != texts[1])]


def _call_handles(call: list[Any]) -> Iterator[int]:
    """Handles that a recorded call names, in its arguments, its answer or its error."""
    for name, item in named(call[0], call[1]):
        yield from handles_of(item, name)
    if len(call) < 3:
        return
    match call[2]:
        case ["ok", [_, int(handle), _]] if call[0] == "match_full_device_prefix":
            yield handle
        case ["ok", answer] if call[0] in HANDLE_ANSWERS:
            yield from handles_of(answer, "node_ids" if isinstance(answer, list) else "node_id")
        case ["ok", answer]:
            yield from handles_of(answer)
        case ["error", _, int(handle)]:
            yield handle


def handles_of(item: Any, name: str = "") -> Iterator[int]:
    """Handles in a plain value; `name` is the field or parameter that holds it."""
    if name in HANDLE_FIELDS:
        if type(item) is int:
            yield item
    elif name in HANDLE_LIST_FIELDS:
        yield from (one for one in item or [] if type(one) is int)
    elif is_record(item):
        for field, value in fields_of(item).items():
            yield from handles_of(value, field)
    elif isinstance(item, list):
        for one in item:
            if isinstance(one, list):
                yield from handles_of(one)


def touched_by(calls: list[Any]) -> list[int]:
    """Handles that calls name, each once, in the order in which they are named."""
    return list(dict.fromkeys(handle for call in calls for handle in _call_handles(call)))


# --- Pools, trees and snapshots -----------------------------------------------------------


def _pool_rows(left: list[Any], right: list[Any]) -> list[Row]:
    rows = []
    for index in range(max(len(left), len(right))):
        entries: list[Any] = [one[index] if index < len(one) else None for one in (left, right)]
        if None in entries or entries[0][0] != entries[1][0]:
            texts = [MISSING if one is None else f"{one[0]} {describe(one[1])}" for one in entries]
        else:
            cut = describe_both(entries[0][1], entries[1][1])
            texts = [f"{entries[0][0]} {text}" for text in cut]
        differs = entries[0] != entries[1]
        rows.append(Row(field=f"pool[{index}]", left=texts[0], right=texts[1], differs=differs))
    return rows


def _in_trees(where: str, left: Any, right: Any) -> Parting:
    if left is None or right is None:
        return Parting()
    if where.startswith("tree.node."):
        return _in_nodes(left["nodes"], right["nodes"])
    step = re.match(r"tree\.paths\[(\d+)\]\[(\d+)\]", where)
    if step is not None:
        path, number = int(step[1]), int(step[2])
        ours, theirs = (tree["paths"][path][number] for tree in (left, right))
        handles = {*handles_of(ours), *handles_of(theirs)}
        return Parting(rows=rows_of(ours, theirs), handles=handles)
    name = re.sub(r"\[.*", "", where.split(".")[1]) if "." in where else ""
    if name not in left or name not in right:
        return Parting()
    return Parting(rows=rows_of({name: left[name]}, {name: right[name]}))


def _in_nodes(left: list[Any], right: list[Any]) -> Parting:
    """The first node of which the sides tell different facts."""
    for ours, theirs in zip(left, right, strict=False):
        if first_difference(ours, theirs) is not None:
            facts = [dict(zip(NODE_FACTS, node, strict=False)) for node in (ours, theirs)]
            return Parting(rows=rows_of(facts[0], facts[1]), handles={ours[0], theirs[0]})
    return Parting()


def _in_snapshots(where: str, left: Any, right: Any) -> Parting:
    if left is None or right is None:
        return Parting()
    step = re.match(r"snapshot\.nodes\[(\d+)\]", where)
    if step is not None:
        ours, theirs = (taken["nodes"][int(step[1])] for taken in (left, right))
        return Parting(rows=rows_of(ours, theirs), handles={ours["node_id"], theirs["node_id"]})
    tops = [
        {name: item for name, item in taken.items() if name != "nodes"} for taken in (left, right)
    ]
    ids = [{node["node_id"] for node in taken["nodes"]} for taken in (left, right)]
    counts = Row(
        field="nodes", left=str(len(ids[0])), right=str(len(ids[1])), differs=ids[0] != ids[1]
    )
    leaves = [{*taken["device_leaves"], *taken["host_leaves"]} for taken in (left, right)]
    handles = (ids[0] ^ ids[1]) or (leaves[0] ^ leaves[1])
    return Parting(rows=[counts, *rows_of(tops[0], tops[1])], handles=handles)
