"""A run as Markdown for a CI job's summary, and as annotations that the job prints.

Text of a core or a trace can hold anything: it is fenced or escaped, so that it stays text.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from .commands import PROMOTE, lines_of
from .explained import text_explanation
from .groups import Group, groups_of
from .run import Kind, RunView
from .words import duration, place_of, plural, versus

GROUPS_MAX = 40
"""Groups of kinds told in full: a job's summary has at most one mebibyte."""

LINES_MAX = 200
"""Groups of kinds told in a line of the table."""

TEXT_MAX = 8_000
"""Characters of one explanation or value."""

ELSEWHERE = (
    "On another machine, download the run's folder first: `treedrift report FOLDER` "
    "makes these reports anew, with its traces named where they lie there."
)

SIGNS = {"blind": "❌", "new": "❌", "known": "⚠️", "agreed": "✅"}


def summary(run: RunView) -> str:
    """The whole summary."""
    parts = [f"## {SIGNS[run.standing]} treedrift: {text(run.verdict())}", _figures(run)]
    groups = [*groups_of(run.new), *groups_of(run.known)]
    if groups:
        parts += ["### Findings", _overview(groups)]
        told = enumerate(groups[:GROUPS_MAX])
        parts += [_details(run, group, is_open=number == 0) for number, group in told]
    if len(groups) > GROUPS_MAX:
        parts.append(f"{len(groups) - GROUPS_MAX:,} more are in the run's page.")
    if run.vanished:
        gone = [f"- {code(entry.known)}: {versus(entry.pair)}" for entry in run.vanished]
        parts += ["### Known differences that no longer show", "\n".join(gone)]
        parts.append(f"What is repaired stays so with {code(PROMOTE)}.")
    if groups:
        parts.append(ELSEWHERE)
    if run.started is not None and run.started.command:
        parts += ["Repeat the run:", fence(run.started.command)]
    return "\n\n".join(parts) + "\n"


def _figures(run: RunView) -> str:
    canary = "none"
    if run.canaries:
        names = ", ".join(code(one.drill) for one in run.canaries)
        canary = f"{names} {'caught' if all(one.caught for one in run.canaries) else 'NOT caught'}"
    rows = [
        ("Ops", f"{run.tally.op_count:,} in {plural(run.tally.cases, 'case')}"),
        ("Time", f"{duration(run.seconds)}, {run.rate:,.0f} ops/s"),
        ("Canary", canary),
    ]
    if run.started is not None:
        versions = [f"{name} {version}" for name, version in sorted(run.started.versions.items())]
        rows.append(("Profile, seed", f"{text(run.started.profile)}, {run.started.seed}"))
        rows += [("Versions", text(", ".join(versions)))] if versions else []
    return table(["", ""], [[name, value] for name, value in rows])


def _overview(groups: Sequence[Group]) -> str:
    rows = [
        [
            "known" if group.is_known else "**new**",
            text(group.headline),
            group.lead.rule or "",
            f"{group.count:,}",
            _sizes(group.lead),
        ]
        for group in groups[:LINES_MAX]
    ]
    return table(["Status", "What differs", "Rule", "Seen", "Ops"], rows)


def _sizes(kind: Kind) -> str:
    shrunk = kind.shrunk
    return "" if shrunk is None else f"{shrunk.ops_before:,} → {shrunk.ops_after:,}"


def _details(run: RunView, group: Group, is_open: bool) -> str:
    kind = group.lead
    status = "known" if kind.is_known else "new"
    times = plural(group.count, "time")
    lines = [
        "<details open>" if is_open else "<details>",
        f"<summary>{status}: {html.escape(group.headline, quote=False)}</summary>",
        "",
        f"{versus(kind.pair)}; {times}, first {place_of(kind.first)}.",
    ]
    if kind.is_known:
        lines += ["", text(run.note_of(kind))]
    lines += ["", *_explained(kind)]
    if group.others:
        alike = "difference" if group.is_known else "call and field"
        lines += ["", f"The same {alike} elsewhere:", "", *map(_other, group.others)]
    if kind.commands:
        lines += ["", "What to do next:", "", fence("\n".join(lines_of(kind.commands)), "sh")]
    return "\n".join([*lines, "", "</details>"])


def _other(kind: Kind) -> str:
    """A kind beside the one that leads, in one line."""
    size = "" if kind.shrunk is None else f", {plural(kind.shrunk.ops_after, 'op')}"
    file = "" if kind.file is None else f": {code(kind.file)}"
    return f"- {code(kind.first.op_kind)} {plural(kind.count, 'time')}{size}{file}"


def _explained(kind: Kind) -> list[str]:
    explanation = kind.explanation
    if explanation is None:
        values = (kind.first.left, kind.first.right)
        shown = [
            f"{name}: {str(value)[:TEXT_MAX]}"
            for name, value in zip(kind.pair, values, strict=True)
        ]
        return [fence("\n".join([kind.first.where, *shown]))]
    return [fence(text_explanation(explanation)[:TEXT_MAX])]


# --- Annotations --------------------------------------------------------------------------


def annotations_of(run: RunView) -> list[str]:
    """Lines that a workflow turns into annotations: what is new, vanished or blind."""
    lines = []
    if run.standing == "blind":
        lines.append(_annotation("error", "treedrift canary", run.verdict()))
    for group in groups_of(run.new):
        kind, message = group.lead, group.headline
        if kind.rule:
            message += f" (rule {kind.rule})"
        for command in kind.commands[:1]:
            message += f"\nLook: {command.line}"
        title = f"treedrift: {versus(kind.pair)}"
        lines.append(_annotation("error", title, message))
    for entry in run.vanished:
        message = f"the known difference {entry.known} no longer shows for {versus(entry.pair)}"
        lines.append(_annotation("warning", "treedrift: a known difference vanished", message))
    if run.known:
        names = ", ".join(sorted({_known_name(kind) for kind in run.known}))
        lines.append(_annotation("notice", "treedrift: known differences", names))
    return lines


def _known_name(kind: Kind) -> str:
    return (kind.judged.known if kind.judged is not None else None) or kind.signature


def _annotation(level: str, title: str, message: str) -> str:
    escaped = message.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    named = title.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return f"::{level} title={named.replace(':', '%3A').replace(',', '%2C')}::{escaped}"


# --- Markdown -----------------------------------------------------------------------------


def text(raw: str) -> str:
    """Text that stays text: no markup, no HTML, no table cell."""
    escaped = raw.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_{}\[\]|#~])", r"\\\1", escaped).replace("\n", " ")


def code(raw: str) -> str:
    """Inline code, whatever it holds; in a table too."""
    ticks = max((len(run) for run in re.findall("`+", raw)), default=0)
    edge = "`" * (ticks + 1)
    space = " " if raw.startswith("`") or raw.endswith("`") else ""
    inner = (raw[:TEXT_MAX] or " ").replace("\n", " ").replace("|", "\\|")
    return f"{edge}{space}{inner}{space}{edge}"


def fence(raw: str, language: str = "") -> str:
    """A block of code that its own backticks can't close."""
    ticks = max((len(run) for run in re.findall("`{3,}", raw)), default=2)
    edge = "`" * (ticks + 1)
    return f"{edge}{language}\n{raw}\n{edge}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells that are Markdown already."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
