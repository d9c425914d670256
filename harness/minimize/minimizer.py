"""Makes a failing trace small: looks at it, searches, and says what came out.

What is kept is the *signature of record*: what a replay of the saved trace shows with everything
looked at after every op.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from hashlib import blake2b
from pathlib import Path
from time import monotonic
from typing import Literal

import msgspec
from msgspec.structs import replace

from ..compare import Divergence, decisive
from ..lockstep import Lockstep, Pair
from ..opening import open_lockstep
from ..trace import FORMAT_VERSION, Trace, dump_trace
from .checkpoint import Checkpoint
from .draft import Draft
from .parallel import Alone, Together
from .search import Evaluator, Search
from .trial import Judge, Memo, replayed

LOOKS = 3
"""How often a trace is replayed before it counts as one that always shows the same."""

LOOKING_SECONDS = 5.0
"""After so long no further one of them begins.

What shows by chance is found out at the end too: the result is replayed once more.
"""

LONG_OPS = 1000
"""A replay of so many ops takes a while, so it is told of."""

NOTE_LENGTH_MAX = 300

Verdict = Literal["DIVERGES", "FLAKY", "AGREES", "SLIPPED"]


class Minimized(msgspec.Struct, kw_only=True):
    """What shrinking a trace gave.

    `signature` is the kind that was kept, `replayed` what a replay of `trace` shows. `is_minimal`:
    no op can be left out, and no other simplification that is known keeps the signature; otherwise
    time ran out. `tried` counts the neighbours of the result that lose the signature, by pass;
    `slipped` the candidates that failed in another way, by signature, with the simplest trace of
    the first few in `slipped_traces`. `trials` counts the different traces that were tried.

    `verdict`: `DIVERGES`; `SLIPPED` if the signature asked for does not show and another one was
    kept; `FLAKY` if replays differ, and `AGREES` if nothing shows, both with the trace as it was.
    """

    trace: Trace
    signature: str | None
    replayed: str | None
    is_minimal: bool
    seconds: float
    trials: int
    ops_before: int
    tried: dict[str, int] = {}
    slipped: dict[str, int] = {}
    slipped_traces: list[Trace] = []
    verdict: Verdict = "DIVERGES"


def minimize(
    trace: Trace,
    pair: Pair,
    *,
    signature: str | None = None,
    budget_seconds: float = 30.0,
    jobs: int = 1,
    checkpoint: Path | None = None,
    tell: Callable[[str], None] = lambda line: None,
    lockstep: Lockstep | None = None,
) -> Minimized:
    """The smallest trace that can be found on which the pair still diverges in the same way.

    `signature` names the kind to keep; None takes what a replay shows first. The budget counts
    from the end of the first replay and is exceeded by one trial at most. With `jobs` above one,
    candidates are tried ahead in that many processes, unless `lockstep` lends sides that are open
    already: those can't be shared. `checkpoint` is a file from which a later call with the same
    input goes on. `tell` hears a line now and then.

    Raises the errors of `open_lockstep`, and `TraceError` if the checkpoint can't be written.
    """
    with ExitStack() as stack:
        opened = lockstep
        if opened is None:
            opened = open_lockstep([pair])
            stack.callback(opened.close)
            opened.start()
        work = _Work(trace, pair, opened, budget_seconds, tell)
        kept = work.look(signature)
        if kept is None:
            return work.result
        file = Checkpoint(checkpoint, _input_digest(trace, pair), kept.signature)
        memo, said = file.load()
        if said:
            tell(said)
        evaluator: Evaluator
        if jobs > 1 and lockstep is None:
            evaluator = stack.enter_context(Together(pair, kept, jobs, memo))
        else:
            evaluator = Alone(Judge(opened, pair, kept, memo))
        work.search(evaluator, file, memo)
        return work.result


CODE = (".py", ".so")


def _input_digest(trace: Trace, pair: Pair) -> str:
    """What the outcomes of a search depend on: the trace, the pair, and the code of this program.

    Whoever repairs a core between two calls must not be told what the broken one did.
    """
    asked = dump_trace(trace) + repr((pair, _code_stamp())).encode()
    return blake2b(asked, digest_size=16).hexdigest()


def _code_stamp() -> int:
    """When a file of this program was last changed, in nanoseconds."""
    package = Path(__file__).parents[2]
    # In a checkout the rooms are links, which a search through folders does not follow.
    folders = [package, *(room for room in package.iterdir() if room.is_symlink())]
    files = (file for folder in folders for file in folder.rglob("*") if file.suffix in CODE)
    return max((file.stat().st_mtime_ns for file in files), default=0)


class _Work:
    """One call of `minimize`: the input, and what is known about the result so far."""

    def __init__(
        self,
        trace: Trace,
        pair: Pair,
        lockstep: Lockstep,
        budget_seconds: float,
        tell: Callable[[str], None],
    ) -> None:
        self._pair = pair
        self._lockstep = lockstep
        self._started = monotonic()
        self._budget = budget_seconds
        self._deadline = self._started
        self._tell = tell
        self._header = trace.header
        self._first = Draft(trace.header.config, trace.ops)
        self._kept: Divergence | None = None
        self.result = Minimized(
            trace=trace,
            signature=None,
            replayed=None,
            is_minimal=False,
            seconds=0.0,
            trials=0,
            ops_before=len(trace.ops),
            verdict="AGREES",
        )

    def _replay(self, draft: Draft) -> list[Divergence]:
        return replayed(self._lockstep, self._pair, draft)

    def look(self, signature: str | None) -> Divergence | None:
        """Replay the trace a few times; the divergence to keep, unless there is nothing to do."""
        result = self.result
        if len(self._first.ops) >= LONG_OPS:
            self._tell(f"{len(self._first.ops)} ops are replayed first")
        found = self._replay(self._first)
        self._deadline = monotonic() + self._budget
        seen = [one.signature for one in found]
        named = next((one for one in found if one.signature == signature), None)
        self._kept = named or decisive(found)
        is_steady = True
        result.trials = 1
        while is_steady and result.trials < LOOKS:
            if monotonic() - self._started > LOOKING_SECONDS:
                break
            is_steady = [one.signature for one in self._replay(self._first)] == seen
            result.trials += 1
        result.seconds = monotonic() - self._started
        if not is_steady:
            result.verdict = "FLAKY"
            result.signature = signature
            return None
        if self._kept is not None:
            result.verdict = "DIVERGES" if named or signature is None else "SLIPPED"
            result.signature = result.replayed = self._kept.signature
            if result.verdict == "SLIPPED":
                self._tell(f"{signature} does not show; {result.signature} does")
        return self._kept

    def search(self, evaluator: Evaluator, file: Checkpoint, memo: Memo) -> None:
        """Search for the smallest trace, and keep the checkpoint up to date."""
        kept = self._kept
        assert kept is not None, "there is nothing to search for"
        end = None if kept.op_index is None else kept.op_index + 1
        first = Draft(self._first.config, self._first.ops[:end])
        search = Search(evaluator, first, self._deadline, lambda: note_progress())

        def save() -> None:
            file.save(dump_trace(self._as_trace(search.best, kept)), search.trials, memo)

        def note_progress() -> None:
            if file.is_due():
                save()
                self._tell(f"{len(search.best.ops)} ops after {search.trials} trials")

        try:
            self.result.is_minimal = search.run()
        finally:
            save()
        self._finish(search, kept)

    def _finish(self, search: Search, kept: Divergence) -> None:
        """Replay what was reached once more: a result that does not show its kind is none."""
        result = self.result
        result.trials += search.trials
        result.tried = search.tried
        result.slipped = dict(search.slipped)
        result.slipped_traces = [
            self._as_trace(draft, None, signature) for signature, draft in search.slips.items()
        ]
        found = self._replay(search.best)
        shown = next((one for one in found if one.signature == kept.signature), None)
        if shown is None:
            other = decisive(found)
            result.verdict = "FLAKY"
            result.is_minimal = False
            result.replayed = None if other is None else other.signature
        else:
            result.trace = self._as_trace(search.best, shown)
        result.seconds = monotonic() - self._started

    def _as_trace(
        self, draft: Draft, divergence: Divergence | None, signature: str | None = None
    ) -> Trace:
        """A draft as a trace that says what it shows."""
        note = "another kind that a search came across"
        if divergence is not None:
            signature = divergence.signature
            note = f"{divergence.kind} at {divergence.op_kind}: {divergence.where}"
        header = replace(
            self._header,
            version=FORMAT_VERSION,
            note=note[:NOTE_LENGTH_MAX],
            pair=self._pair,
            expect="diverges",
            signature=signature,
            config=draft.config,
        )
        return Trace(header, list(draft.ops))
