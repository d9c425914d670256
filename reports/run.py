"""One run, put together from its events: what every report reads.

Events of one kind of divergence (found, shrunk, judged, explained) become one `Kind`. A run that
was cut, or went on after that, is told as far as its stream goes.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from ..harness.compare import Divergence
from ..harness.events import (
    Canary,
    Checkpoint,
    Event,
    Explained,
    Finished,
    Found,
    Judged,
    LedgerChecked,
    Sample,
    Shrunk,
    Started,
)
from ..harness.explanation import Explanation
from ..harness.lockstep import Pair
from ..harness.rules import rule_numbered
from ..harness.tally import Tally
from .commands import Command, next_commands
from .words import plural, versus

Standing = Literal["blind", "new", "known", "agreed"]
"""What a run comes to. `blind`: its canary was not caught, so that it proves nothing."""


class Kind(msgspec.Struct, kw_only=True):
    """One kind of divergence of one pair. `seconds` is when it was first found.

    `is_replay`: it was first seen on a trace that was saved before, perhaps for another pair.
    """

    first: Divergence
    count: int = 1
    seconds: float = 0.0
    is_replay: bool = False
    seed: int | None = None
    shrunk: Shrunk | None = None
    judged: Judged | None = None
    explained: Explained | None = None

    @property
    def pair(self) -> Pair:
        """The pair that it was found on."""
        return self.first.pair

    @property
    def signature(self) -> str:
        """Its name."""
        return self.first.signature

    @property
    def group(self) -> str:
        """What it shares with kinds that are likely to be one fault with it.

        The ledger's entry, else the signature without the op: the same call and field.
        """
        if self.is_known and self.judged is not None and self.judged.known:
            return self.judged.known
        start = f"{self.first.kind}:{self.first.op_kind}:"
        rest = self.signature.removeprefix(start)
        return self.signature if rest == self.signature else f"{self.first.kind}:*:{rest}"

    @property
    def is_known(self) -> bool:
        """Whether the ledger explains it."""
        return self.judged is not None and self.judged.status == "known"

    @property
    def explanation(self) -> Explanation | None:
        """Its explanation, if there is one yet; the ledger knows better which rule decides."""
        told = None if self.explained is None else self.explained.explanation
        rule = self.rule
        if told is None or rule is None or rule == told.rule:
            return told
        return msgspec.structs.replace(told, rule=rule, rule_text=rule_numbered(rule).text)

    @property
    def rule(self) -> str | None:
        """The rule that decides about it, if one is known."""
        judged = None if self.judged is None else self.judged.rule
        explained = None if self.explained is None else self.explained.explanation.rule
        return judged or explained

    @property
    def rule_text(self) -> str | None:
        """What that rule says, in one sentence."""
        if self.explanation is not None:
            return self.explanation.rule_text
        return None if self.rule is None else rule_numbered(self.rule).text

    @property
    def file(self) -> str | None:
        """The trace to look at: the shrunk one if there is one."""
        return self.first.file if self.shrunk is None else self.shrunk.file

    @property
    def commands(self) -> list[Command]:
        """What to type next about it."""
        is_minimal = self.shrunk is not None and self.shrunk.is_minimal
        return next_commands(self.file, self.pair_to_name, is_minimal=is_minimal)

    @property
    def pair_to_name(self) -> Pair | None:
        """The pair if a command must name it; None where the trace does: runs save it there."""
        return self.pair if self.is_replay and self.shrunk is None else None


class RunView(msgspec.Struct, kw_only=True):
    """A run as reports see it.

    `is_interrupted`: it was ended by Ctrl-C. `is_finished` is false where the stream has no end:
    the run was killed, or still lasts.
    """

    pairs: list[Pair]
    tally: Tally
    seconds: float
    kinds: list[Kind]
    is_interrupted: bool = False
    is_finished: bool = True
    started: Started | None = None
    canaries: list[Canary] = []
    samples: list[Sample] = []
    ledger: list[LedgerChecked] = []

    @classmethod
    def from_events(cls, events: Iterable[Event], folder: Path | None = None) -> RunView:
        """Put a run together. With its `folder`, traces are named where they lie there now."""
        gathered = _Gathered(folder)
        for event in events:
            gathered.take(event)
        return gathered.view()

    @property
    def new(self) -> list[Kind]:
        """Kinds that the ledger does not explain; those that end a case first."""
        return sorted((k for k in self.kinds if not k.is_known), key=lambda k: k.first.is_soft)

    @property
    def known(self) -> list[Kind]:
        """Kinds that the ledger explains."""
        return [kind for kind in self.kinds if kind.is_known]

    @property
    def vanished(self) -> list[LedgerChecked]:
        """Known differences that no longer show."""
        return [entry for entry in self.ledger if not entry.holds]

    @property
    def standing(self) -> Standing:
        """What the run comes to."""
        if not all(canary.caught for canary in self.canaries):
            return "blind"
        if self.new:
            return "new"
        return "known" if self.known else "agreed"

    @property
    def rate(self) -> float:
        """Ops a second over the whole run."""
        return self.tally.op_count / max(self.seconds, 1e-9)

    def note_of(self, kind: Kind) -> str:
        """What the ledger says about a known kind."""
        known = kind.judged.known if kind.judged is not None else None
        notes = [entry.note for entry in self.ledger if entry.known == known and entry.note]
        return notes[0] if notes else f"known as {known}" if known else ""

    def verdict(self, *, names_pairs: bool = True) -> str:
        """The run in a few sentences; a page whose title names the pairs need not repeat them."""
        said = [self._outcome("; ".join(map(versus, self.pairs)) if names_pairs else "")]
        if self.vanished:
            said.append(f"Vanished: {plural(len(self.vanished), 'known difference')}.")
        if not self.is_finished:
            said.append("The run was cut off; this is what it had told until then.")
        elif self.is_interrupted:
            said.append("The run was interrupted; this is what it had told until then.")
        return " ".join(said)

    def _outcome(self, who: str) -> str:
        place = f"in {plural(self.tally.op_count, 'op')}" + (f", {who}" if who else "")
        if self.standing == "blind":
            missed = ", ".join(canary.drill for canary in self.canaries if not canary.caught)
            return f"The canary ({missed}) was not caught: this run proves nothing."
        if self.standing == "new":
            faults = len({(kind.pair, kind.group) for kind in self.new})
            alike = f" (they look like {plural(faults, 'fault')})" if faults < len(self.new) else ""
            known = f" and {len(self.known):,} known" if self.known else ""
            return f"{plural(len(self.new), 'new kind')} of divergence{alike}{known} {place}."
        if self.standing == "known":
            entries = len({(kind.pair, kind.group) for kind in self.known})
            told = f"{plural(len(self.known), 'kind')} of divergence, explained by "
            return f"Nothing new: {told}{plural(entries, 'known difference')}, {place}."
        return f"No divergence {place}."


class _Gathered:
    """What the events have told so far."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._pairs: dict[Pair, None] = {}
        self._kinds: dict[tuple[Pair, str], Kind] = {}
        self._said: dict[tuple[type, Pair, str], Shrunk | Judged | Explained] = {}
        self._checkpoints: dict[int, Checkpoint] = {}
        self._canaries: dict[str, Canary] = {}
        self._samples: list[Sample] = []
        self._ledger: dict[tuple[Pair, str], LedgerChecked] = {}
        self._started: Started | None = None
        self._finished: Finished | None = None
        self._seconds = 0.0

    def take(self, event: Event) -> None:
        """Add one event; a later one of a thing replaces an earlier one."""
        if isinstance(event, Shrunk | Judged | Explained):
            self._said[type(event), event.pair, event.signature] = event
            return
        if isinstance(event, LedgerChecked):
            self._ledger[event.pair, event.known] = event
            return
        if isinstance(event, Started):
            self._started, self._finished = event, None  # A resumed run ends anew.
            self._pairs |= dict.fromkeys(event.pairs)
            return
        if isinstance(event, Canary):
            self._canaries[event.drill] = event
            return
        self._seconds = max(self._seconds, event.seconds)
        if isinstance(event, Found):
            self._found(event)
        elif isinstance(event, Sample):
            self._samples.append(event)
        elif isinstance(event, Checkpoint):
            self._checkpoints[event.job] = event
        elif isinstance(event, Finished):
            self._finished = event

    def _found(self, event: Found) -> None:
        found = event.divergence
        self._pairs.setdefault(found.pair)
        kind = self._kinds.get((found.pair, found.signature))
        if kind is not None:
            kind.count += 1
            return
        self._kinds[found.pair, found.signature] = Kind(
            first=msgspec.structs.replace(found, file=self._located(found.file)),
            seconds=event.seconds,
            seed=event.seed,
            is_replay=event.job < 0,  # Jobs of replays have negative numbers.
        )

    def _located(self, file: str | None) -> str | None:
        """A run folder may have been moved, as when CI hands it out as an archive."""
        if file is None or self._folder is None:
            return file
        inside = self._folder / "findings" / Path(file).name
        return str(inside) if inside.exists() else file

    def _with_all_said(self, kind: Kind) -> Kind:
        for (what, pair, signature), event in self._said.items():
            if (pair, signature) == (kind.pair, kind.signature):
                setattr(kind, what.__name__.lower(), event)
        if kind.shrunk is not None:
            file = self._located(kind.shrunk.file) or kind.shrunk.file
            kind.shrunk = msgspec.structs.replace(kind.shrunk, file=file)
        return kind

    def _tally(self) -> Tally:
        """The end's if there is one, else the latest that was told."""
        if self._finished is not None:
            return self._finished.tally
        summed = Tally.empty()
        for checkpoint in self._checkpoints.values():
            summed.add(checkpoint.tally)
        told = [sample.tally for sample in self._samples] + [summed]
        return max(told, key=lambda tally: tally.op_count)

    def view(self) -> RunView:
        """The run."""
        return RunView(
            pairs=list(self._pairs),
            tally=self._tally(),
            seconds=self._seconds if self._finished is None else self._finished.seconds,
            kinds=[self._with_all_said(kind) for kind in self._kinds.values()],
            is_interrupted=self._finished is not None and self._finished.interrupted,
            is_finished=self._finished is not None,
            started=self._started,
            canaries=list(self._canaries.values()),
            samples=self._samples,
            ledger=list(self._ledger.values()),
        )
