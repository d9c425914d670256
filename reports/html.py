"""The page of a run: one HTML file that loads nothing and holds no script.

The same events give the same bytes. Everything that a core, a trace or a user said is escaped:
only what this project draws itself (trees, plots, marks in values) is markup.
"""

from __future__ import annotations

import difflib
import math
import re
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from ..harness.behaviours import EXPECTED_BEHAVIOURS
from ..harness.explanation import Row
from . import plots, tables
from .explained import differing_first
from .groups import Group, groups_of
from .run import Kind, RunView
from .trees import Picture, pictures
from .words import described, duration, place_of, plural, versus

OPS_OPEN_MAX = 24
"""A longer trace is folded away."""

ROWS_PLOTTED_MIN = 4
"""Fewer points in time make no curve."""

SAME_ROWS_MAX = 6
"""More fields that are the same on both sides are folded away."""

VALUE_MAX = 4000
"""Longer values are cut, in characters."""


def page(run: RunView) -> str:
    """The whole page of a run."""
    groups = [*groups_of(run.new), *groups_of(run.known)]
    over_time = tables.over_time(run)
    drawn = {}
    if len(over_time) >= ROWS_PLOTTED_MIN:
        drawn["rate"] = Markup(plots.rate(over_time))
        drawn["growth"] = Markup(plots.growth(over_time, len(EXPECTED_BEHAVIOURS)))
    return (
        environment()
        .get_template("page.html.j2")
        .render(
            run=run,
            findings=[_Finding(number, group, run) for number, group in enumerate(groups, 1)],
            releases=_releases(run),
            coverage=_coverage(run),
            cores=tables.cores(run).reset_index(names="name").to_dict("records"),
            plots=drawn,
            expected=len(EXPECTED_BEHAVIOURS),
        )
    )


def _releases(run: RunView) -> list[str]:
    """The releases of SGLang that take part, as they are asked for."""
    versions = {} if run.started is None else run.started.versions
    names = [name for pair in run.pairs for name in pair if name.startswith("sglang-")]
    found = {name.partition("@")[2] or versions.get(name, "") for name in names}
    return [f"sglang=={release}" for release in sorted(filter(None, found))]


def environment() -> jinja2.Environment:
    """Templates of this folder, with everything escaped that they are given."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {
        "number": lambda count: f"{count:,.0f}",
        "duration": duration,
        "plural": plural,
        "versus": versus,
        "breakable": breakable,
        "described": described,
    }
    return made


class _Finding:
    """What the template says about one group of kinds: number, heading, and the kind that leads."""

    def __init__(self, number: int, group: Group, run: RunView) -> None:
        self.number = number
        self.group = group
        self.headline = group.headline
        self.lead = _Told(group.lead, run)
        self.others = [_Told(kind, run) for kind in group.others]


class _Told:
    """What the template says about one kind."""

    def __init__(self, kind: Kind, run: RunView) -> None:
        self.kind = kind
        self.first = kind.first
        self.shrunk = kind.shrunk
        self.explanation = kind.explanation
        self.place = place_of(kind.first)
        self.note = run.note_of(kind) if kind.is_known else ""
        self.guilty, self.verdict = kind.first.side, kind.first.verdict
        if kind.explanation is not None and kind.explanation.guilty:
            self.guilty, self.verdict = kind.explanation.guilty, kind.explanation.verdict

    @property
    def rows(self) -> list[tuple[str, Markup | str, Markup | str, bool]]:
        """Field, both values, and whether they differ; what differs in them is marked."""
        if self.explanation is not None and self.explanation.rows:
            rows = differing_first(self.explanation.rows)
        elif self.first.left is None and self.first.right is None:
            return []
        else:
            texts = [str(value)[:VALUE_MAX] for value in (self.first.left, self.first.right)]
            field = re.split(r"[.\]]", self.first.where)[-1] or "value"
            rows = [Row(field=field, left=texts[0], right=texts[1], differs=True)]
        return [(row.field, *_sides_of(row), row.differs) for row in rows]

    @property
    def folded_rows(self) -> list[tuple[str, Markup | str, Markup | str, bool]]:
        """The fields that are the same, where they are too many to stand beside the others."""
        same = [row for row in self.rows if not row[3]]
        return same if len(same) > SAME_ROWS_MAX else []

    @property
    def pictures(self) -> list[Picture]:
        """The trees."""
        return [] if self.explanation is None else pictures(self.explanation)

    @property
    def tried(self) -> list[tuple[str, int]]:
        """The passes of the minimizer that tried something."""
        tried = {} if self.shrunk is None else self.shrunk.tried
        return [(name, count) for name, count in sorted(tried.items()) if count]

    @property
    def is_long(self) -> bool:
        """Whether the trace is folded away."""
        return self.explanation is not None and len(self.explanation.ops) > OPS_OPEN_MAX


def _sides_of(row: Row) -> tuple[Markup | str, Markup | str]:
    if not row.differs:
        return row.left, row.right
    return marked(row.left, row.right)


def marked(left: str, right: str) -> tuple[Markup, Markup]:
    """Two texts with the words marked that the other one lacks."""
    words = [re.findall(r"\w+|\s+|[^\w\s]", text) for text in (left, right)]
    matcher = difflib.SequenceMatcher(None, words[0], words[1], autojunk=False)
    sides: tuple[list[Markup], list[Markup]] = ([], [])
    for tag, start, end, other_start, other_end in matcher.get_opcodes():
        for side, text in (
            (sides[0], "".join(words[0][start:end])),
            (sides[1], "".join(words[1][other_start:other_end])),
        ):
            if text:
                side.append(Markup("<mark>{}</mark>" if tag != "equal" else "{}").format(text))
    return Markup("").join(sides[0]), Markup("").join(sides[1])


def breakable(text: str) -> Markup:
    """A path or a signature that may break after its dots and colons."""
    parts = re.split(r"(?<=[.:/@,])", text)
    return Markup("<wbr>").join(parts)


def _coverage(run: RunView) -> list[tuple[str, list[dict[str, Any]]]]:
    """Groups of counts with the length of each bar; on a log scale, so that rare ones show."""
    table = tables.coverage(run)
    groups = []
    for name in ("ops", "behaviours", "policies"):
        rows = table[table["group"] == name].to_dict("records")
        most = max((row["count"] for row in rows), default=0)
        for row in rows:
            row["bar"] = round(100 * math.log1p(row["count"]) / math.log1p(max(most, 1)), 1)
        groups.append((name, rows))
    return groups
