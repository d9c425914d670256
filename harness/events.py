"""What a run tells, as one stream: terminal, JSON lines, JUnit, Markdown and HTML all read it.

A run folder keeps the stream in `events.jsonl`, so that a report can be made later, from any run,
and an interrupted one can go on. Seconds count from the start of the run.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from .compare import Divergence
from .explanation import Explanation
from .lockstep import Pair
from .tally import Tally

EVENTS_FILE = "events.jsonl"
"""Name of the stream in a run folder."""


class Started(msgspec.Struct, tag="started", kw_only=True):
    """The first event: everything that repeats the run. `command` is what was typed.

    `shard` is which part of how many, where machines share a campaign out.
    """

    pairs: list[Pair]
    profile: str
    engine: str
    seed: int
    jobs: int = 1
    shard: tuple[int, int] = (1, 1)
    ops: int | None = None
    seconds: float | None = None
    device: str = "cpu"
    shrink_seconds: float = 30.0
    versions: dict[str, str] = {}
    command: str = ""


class Canary(msgspec.Struct, tag="canary", kw_only=True):
    """Whether the drill that must always be caught was; a run without that proves nothing."""

    drill: str
    caught: bool
    ops: int
    seconds: float


class Progress(msgspec.Struct, tag="progress"):
    """How far a campaign is. Told often; never written to the stream's file."""

    op_count: int
    cases: int
    seconds: float
    findings: int


class Sample(msgspec.Struct, tag="sample", kw_only=True):
    """The tally so far, every few seconds: what curves are drawn from."""

    seconds: float
    tally: Tally


class Found(msgspec.Struct, tag="found"):
    """A divergence; `is_new` if its kind has not been seen before in this run.

    The values of both sides (`left` and `right`) come with the first find of a kind alone.
    `job` and `case` say where in the campaign: the `case`-th case of that job.
    """

    divergence: Divergence
    is_new: bool
    seed: int | None = None
    job: int = 0
    case: int = 0
    seconds: float = 0.0


class Checkpoint(msgspec.Struct, tag="checkpoint", kw_only=True):
    """A job has finished all cases below `next_case` and counted `tally`: a run goes on there."""

    job: int
    next_case: int
    tally: Tally
    seconds: float


class Shrunk(msgspec.Struct, tag="shrunk", kw_only=True):
    """A kind's first trace was made smaller.

    `signature` is that of the found divergence, `replayed` what a replay of the saved trace shows.
    `tried` counts the neighbours tried by pass. `is_minimal`: no single removal keeps the
    signature; otherwise time ran out. `slipped` counts candidates that failed in another way, by
    signature. `verdict` as in the corpus: `DIVERGES`, or `FLAKY` if a replay did not show it.
    """

    pair: Pair
    signature: str
    replayed: str | None
    file: str
    ops_before: int
    ops_after: int
    seconds: float
    trials: int
    is_minimal: bool
    tried: dict[str, int] = {}
    slipped: dict[str, int] = {}
    verdict: str = "DIVERGES"


class Judged(msgspec.Struct, tag="judged", kw_only=True):
    """Whether a kind is known; `known` names the ledger's entry, `rule` its rule."""

    pair: Pair
    signature: str
    status: Literal["new", "known"]
    known: str | None = None
    rule: str | None = None


class Explained(msgspec.Struct, tag="explained", kw_only=True):
    """A kind, explained on its shrunk trace; `trace` is that trace's text."""

    pair: Pair
    signature: str
    explanation: Explanation
    trace: str


class LedgerChecked(msgspec.Struct, tag="ledger", kw_only=True):
    """A known difference that applies to a pair of the run: whether it still shows."""

    pair: Pair
    known: str
    holds: bool
    rule: str | None = None
    note: str = ""


class Finished(msgspec.Struct, tag="finished", kw_only=True):
    """The last event. An interrupted run has one with `interrupted`, a killed one has none."""

    seconds: float
    interrupted: bool
    tally: Tally


Event = (
    Started
    | Canary
    | Progress
    | Sample
    | Found
    | Checkpoint
    | Shrunk
    | Judged
    | Explained
    | LedgerChecked
    | Finished
)
"""Everything that a run can tell."""
