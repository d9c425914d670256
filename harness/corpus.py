"""Replays a saved trace and says whether it still shows what it was saved for.

A trace is replayed several times, closely watched, and what it shows is held against what its
header expects and against the ledger. A missing environment is a verdict and no error, so that a
corpus can be verified on a machine that has not everything.

Hides which sides are open: each is opened when the first trace needs it and kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from ..backends.registry import BackendError, UnavailableBackendError
from ..backends.sglang.environments import EnvironmentsError
from . import ops
from .compare import Divergence, mirrored, without_releases
from .ledger import Entry, Ledger, core_of, entry_from
from .lockstep import Lockstep, Pair
from .opening import SMALL_POOL, allows_hostile, open_lockstep, replay_settings
from .remote import RemoteError, WorkerFailure
from .side import HarnessError
from .trace import Trace, TraceError, read_trace

CORPUS_FOLDER = Path("corpora")
"""Where a checkout keeps its corpus."""

REPLAYS = 3
"""How often a trace is replayed before its verdict counts.

One with large pools takes seconds, so it is replayed again only if the first time is no good.
"""

DEFAULT_PAIR: Pair = ("python", "rust")
"""What a trace without a pair is replayed on."""

Kind = Literal["AGREES", "DIVERGES", "FIXED", "FLAKY", "ERROR", "UNSUPPORTED"]


class Verdict(msgspec.Struct, kw_only=True):
    """What the replays of a trace on a pair came to.

    `AGREES`: no difference. `DIVERGES`: `divergence` is the one that counts most. `FIXED`: it
    should diverge and agrees. `FLAKY`: not every replay shows the same. `ERROR`: it could not be
    replayed. `UNSUPPORTED`: the pair can't run it here. `expected`: nobody has to look at it.
    `runs` counts replays, `known` names the entry of the ledger that explains a difference,
    `signatures` are all that the first replay showed.
    """

    kind: Kind
    expected: bool
    divergence: Divergence | None = None
    runs: int = 0
    detail: str = ""
    known: str | None = None
    signatures: list[str] = []


def find_traces(paths: Sequence[Path]) -> list[Path]:
    """The traces that paths name; those of a folder in order of their names.

    Raises `TraceError` for a folder without any.
    """
    found = []
    for path in paths:
        if path.is_dir():
            inside = sorted(path.rglob("*.jsonl"))
            if not inside:
                raise TraceError(str(path), None, None, "no traces here", "they end in .jsonl")
            found += inside
        else:
            found.append(path)
    return found


def pair_of(trace: Trace) -> Pair:
    """The pair that a trace is replayed on if nobody names another one."""
    return trace.header.pair or DEFAULT_PAIR


class Verifier:
    """Gives verdicts on traces, and keeps the sides that they need open. Close it at the end."""

    def __init__(self, ledger: Ledger | None = None, runs: int = REPLAYS) -> None:
        self._ledger = ledger or Ledger()
        self._runs = runs
        self._open: dict[Pair, Lockstep | Verdict] = {}

    def prepare(self, pair: Pair) -> None:
        """Start the workers of a pair, without waiting until they are ready."""
        if pair not in self._open:
            self._open[pair] = _open(pair)

    def verdict(self, trace: Trace, pair: Pair, ledger: Ledger | None = None) -> Verdict:
        """The verdict on a trace; see the function of this name. `ledger` stands in for its own."""
        obstacle = _obstacle(trace, pair)
        if obstacle is not None:
            return obstacle
        self.prepare(pair)
        lockstep = self._open[pair]
        if isinstance(lockstep, Verdict):
            return lockstep
        return verdict(trace, pair, lockstep, ledger or self._ledger, self._runs)

    def verdict_on_file(
        self, path: Path, pair: Pair | None = None, ledger: Ledger | None = None
    ) -> Verdict:
        """The verdict on a file, on its own pair by default; a bad file is an error."""
        try:
            trace = read_trace(path)
            _entry_in(trace, str(path))
        except TraceError as error:
            return Verdict(kind="ERROR", expected=False, detail=str(error))
        return self.verdict(trace, pair or pair_of(trace), ledger)

    def close(self) -> None:
        """End everything that was opened."""
        for one in self._open.values():
            if isinstance(one, Lockstep):
                one.close()
        self._open.clear()


def _open(pair: Pair) -> Lockstep | Verdict:
    """The sides of a pair, or why there are none."""
    try:
        return open_lockstep([pair])
    except (UnavailableBackendError, EnvironmentsError) as error:
        return Verdict(kind="UNSUPPORTED", expected=True, detail=str(error))
    except (BackendError, WorkerFailure) as error:
        return Verdict(kind="ERROR", expected=False, detail=str(error))


def _obstacle(trace: Trace, pair: Pair) -> Verdict | None:
    """Why a pair can't be given a trace at all."""
    try:
        is_kept_back = any(map(ops.is_hostile, trace.ops)) and not allows_hostile([pair])
    except BackendError as error:
        return Verdict(kind="ERROR", expected=False, detail=str(error))
    if not is_kept_back:
        return None
    detail = "it breaks the protocol, which only our cores answer alike"
    return Verdict(kind="UNSUPPORTED", expected=True, detail=detail)


def verdict(
    trace: Trace,
    pair: Pair,
    lockstep: Lockstep,
    ledger: Ledger | None = None,
    runs: int = REPLAYS,
) -> Verdict:
    """Replay a trace on a pair, whose sides `lockstep` has, and judge what it shows.

    Raises `TraceError` for a trace that is an entry of the ledger and says too little.
    """
    obstacle = _obstacle(trace, pair)
    if obstacle is not None:
        return obstacle
    judgement = _Judgement(trace, pair, ledger or Ledger())
    shown: list[list[Divergence]] = []
    while len(shown) < runs:
        result = _replay(trace, pair, lockstep)
        if isinstance(result, Verdict):
            result.runs = len(shown) + 1
            return result
        shown.append(result)
        if trace.header.config.capacity > SMALL_POOL and judgement.of_all(shown).expected:
            break
    found = judgement.of_all(shown)
    found.runs = len(shown)
    found.signatures = list(dict.fromkeys(one.signature for one in shown[0]))
    return found


def _replay(trace: Trace, pair: Pair, lockstep: Lockstep) -> list[Divergence] | Verdict:
    """What one replay shows, or why there was none."""
    alone = Lockstep({name: lockstep.clients[name] for name in pair}, [pair])
    config = trace.header.config
    try:
        result = alone.run(config, trace.ops, replay_settings([pair], config))
    except (HarnessError, RemoteError) as error:
        return Verdict(kind="ERROR", expected=False, detail=str(error))
    except Exception as error:  # Nobody foresaw it; the traces after this one are replayed still.
        detail = f"the harness failed: {error!r}"
        return Verdict(kind="ERROR", expected=False, detail=detail)
    if result.refused is None:
        return result.divergences
    detail = f"both cores refuse the configuration with {result.refused}"
    return Verdict(kind="UNSUPPORTED", expected=True, detail=detail)


def _entry_in(trace: Trace, file: str) -> Entry | None:
    """The entry of the ledger that a trace is, if it is one. Raises `TraceError`."""
    is_entry = trace.header.known is not None and trace.header.expect == "diverges"
    return entry_from(trace, file) if is_entry else None


class _Judgement:
    """Holds what a trace showed on a pair against what was expected of it."""

    def __init__(self, trace: Trace, pair: Pair, ledger: Ledger) -> None:
        self.trace = trace
        self.pair = pair
        self.ledger = ledger
        self.entry = _entry_in(trace, "<trace>")

    def of_all(self, shown: list[list[Divergence]]) -> Verdict:
        """The verdict on all replays together."""
        kinds = {tuple((one.signature, one.op_index) for one in found) for found in shown}
        if len(kinds) > 1:
            said = sorted(kind[0][0] if kind else "agrees" for kind in kinds)
            first = next(found[0] for found in shown if found)
            detail = f"replays differ: {', '.join(said)}"
            return Verdict(kind="FLAKY", expected=False, divergence=first, detail=detail)
        found = shown[0]
        broken = next((one for one in found if self._is_unusable(one)), None)
        if broken is not None:
            return self._unusable(broken)
        return self._of_failure(found) if self.should_diverge() else self._of_agreement(found)

    def should_diverge(self) -> bool:
        """Whether the trace is expected to diverge on this pair."""
        header = self.trace.header
        if header.expect == "agrees":
            return False
        if self.entry is not None:
            return self.entry.applies_to(self.pair)
        # A failure tells about the cores that it was found with, in whatever release.
        return header.pair is None or self._cores(header.pair) == self._cores(self.pair)

    def _cores(self, pair: Pair) -> list[str]:
        return sorted(map(core_of, pair))

    def _is_unusable(self, found: Divergence) -> bool:
        """Whether a side could not even be opened, unless that is what the trace tells of."""
        cannot = found.kind == "refused" and "UnsupportedError" in (found.left, found.right)
        dead = found.kind in ("crash", "hang", "memory") and found.op_kind == "open"
        return (cannot or dead) and not self._is_its_own(found)

    def _unusable(self, found: Divergence) -> Verdict:
        if found.kind == "refused":
            side = self.pair[0 if found.left == "UnsupportedError" else 1]
            detail = f"{side} does not support the configuration"
            return Verdict(kind="UNSUPPORTED", expected=True, detail=detail)
        detail = f"{found.side} can't be opened: {found.where}"
        return Verdict(kind="ERROR", expected=False, divergence=found, detail=detail)

    def _of_agreement(self, found: list[Divergence]) -> Verdict:
        if not found:
            return Verdict(kind="AGREES", expected=True)
        known = {id(one): self._known(one) for one in found}
        new = [one for one in found if known[id(one)] is None]
        if not new:
            name = known[id(found[0])]
            return Verdict(
                kind="DIVERGES",
                expected=True,
                divergence=found[0],
                known=name,
            )
        again = [one for one in new if self.trace.header.signature and self._is_its_own(one)]
        if again and self.trace.header.expect == "agrees":
            detail = "what was fixed shows again"
        elif self.entry is not None and self.entry.known.core in self._cores(self.pair):
            detail = "the ledger does not name this release"
        else:
            detail = "new"
        first = (again or new)[0]
        return Verdict(kind="DIVERGES", expected=False, divergence=first, detail=detail)

    def _of_failure(self, found: list[Divergence]) -> Verdict:
        if not found:
            return Verdict(kind="FIXED", expected=False, detail="the difference has vanished")
        own = [one for one in found if self._is_its_own(one)]
        if not own:
            detail = f"diverges in another way than {self.trace.header.signature}"
            return Verdict(kind="DIVERGES", expected=False, divergence=found[0], detail=detail)
        others = [one for one in found if one not in own and self._known(one) is None]
        if others:
            detail = f"diverges in a new way besides {own[0].signature}"
            return Verdict(kind="DIVERGES", expected=False, divergence=others[0], detail=detail)
        name = self._known(own[0])
        return Verdict(kind="DIVERGES", expected=True, divergence=own[0], known=name)

    def _known(self, found: Divergence) -> str | None:
        """The entry of the ledger that explains a divergence."""
        entry = self.ledger.judge(self.pair, found.signature, self.trace)
        if entry is not None:
            return entry.name
        own = self.entry
        return own.rule if own is not None and own.explains(self.pair, found.signature) else None

    def _is_its_own(self, found: Divergence) -> bool:
        """Whether a divergence is the one that the trace was saved for; any if it says none."""
        header = self.trace.header
        if header.signature is None:
            return header.expect == "diverges"
        own = header.pair or self.pair
        said = without_releases(header.signature, own)
        seen = without_releases(found.signature, self.pair)
        is_turned = [core_of(name) for name in own] == [core_of(name) for name in self.pair[::-1]]
        return said == (mirrored(seen) if is_turned else seen)
