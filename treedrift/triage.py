"""What follows a campaign: every kind is shrunk, judged by the ledger, and explained.

Each step is told when it is done, so that a run that goes on begins with the first one missing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from .harness.campaign import stem_of
from .harness.events import Explained, Judged, LedgerChecked, Shrunk
from .harness.explain import explain
from .harness.ledger import Entry, Ledger, check
from .harness.lockstep import Lockstep, Pair
from .harness.minimize import Minimized, minimize
from .harness.opening import open_lockstep
from .harness.remote import RemoteError, WorkerFailure
from .harness.side import HarnessError
from .harness.trace import Trace, dump_trace, read_trace, write_trace
from .reports.run import Kind, RunView
from .run_log import FINDINGS, RunLog

KINDS_SHRUNK_MAX = 20
"""Budgets of how many kinds a run spends on shrinking at most."""


class Options(msgspec.Struct, kw_only=True, frozen=True):
    """How a run is followed up. `shrink_seconds` is for one kind; 0 leaves traces as found."""

    shrink_seconds: float = 30.0
    ledger: Ledger


def triage(log: RunLog, options: Options, warn: Callable[[str], None]) -> None:
    """Shrink, judge and explain what a run found, and see which known differences still hold.

    A kind that can't be followed up is warned of and stays as it was found, so that one odd find
    costs no other its report. Raises `KeyboardInterrupt` as it comes; what was done is told.
    """
    view = RunView.from_events(log.events, log.folder)
    checked = {(one.pair, one.known) for one in view.ledger}
    for pair in view.pairs:
        kinds = [kind for kind in view.kinds if kind.pair == pair and kind.explained is None]
        entries = [
            entry for entry in options.ledger.applicable(pair) if (pair, entry.name) not in checked
        ]
        if not kinds and not entries:
            continue
        lockstep = open_lockstep([pair])
        try:
            lockstep.start()
            for kind in kinds:
                try:
                    _follow_up(log, options, lockstep, kind)
                except (HarnessError, RemoteError, WorkerFailure) as error:
                    warn(f"{kind.signature} could not be followed up: {error}")
            for entry in entries:
                _check(log, lockstep, pair, entry)
        finally:
            lockstep.close()


def _follow_up(log: RunLog, options: Options, lockstep: Lockstep, kind: Kind) -> None:
    if kind.file is None:
        return
    trace, signature = read_trace(kind.file), kind.signature
    if kind.shrunk is not None and kind.shrunk.verdict == "SLIPPED":
        signature = kind.shrunk.replayed or signature
    left = min(options.shrink_seconds, _budget_left(log, options))
    if kind.shrunk is None and left > 0:
        minimized = _shrink(log, lockstep, kind, trace, left)
        trace, signature = minimized.trace, minimized.signature or signature
    known = options.ledger.judge(kind.pair, signature, trace)
    log.tell(
        Judged(
            pair=kind.pair,
            signature=kind.signature,
            status="new" if known is None else "known",
            known=None if known is None else known.name,
            rule=None if known is None else known.rule,
        )
    )
    explanation = explain(trace, lockstep, kind.pair, signature)
    if explanation is not None:
        text = dump_trace(trace).decode()
        log.tell(
            Explained(pair=kind.pair, signature=kind.signature, explanation=explanation, trace=text)
        )


def _budget_left(log: RunLog, options: Options) -> float:
    """Seconds that the run may still spend on shrinking."""
    spent = sum(event.seconds for event in log.events if isinstance(event, Shrunk))
    return KINDS_SHRUNK_MAX * options.shrink_seconds - spent


def _shrink(log: RunLog, lockstep: Lockstep, kind: Kind, trace: Trace, seconds: float) -> Minimized:
    folder = log.findings or Path(FINDINGS)
    stem = _stem(kind, folder)
    checkpoint = folder / f"{stem}.shrink.json"
    minimized = minimize(
        trace,
        kind.pair,
        signature=kind.signature,
        budget_seconds=seconds,
        checkpoint=checkpoint,
        lockstep=lockstep,
    )
    path = folder / f"{stem}.min.jsonl"
    write_trace(path, minimized.trace, overwrite=True)
    checkpoint.unlink(missing_ok=True)
    log.tell(
        Shrunk(
            pair=kind.pair,
            signature=kind.signature,
            replayed=minimized.replayed,
            file=str(path),
            ops_before=minimized.ops_before,
            ops_after=len(minimized.trace.ops),
            seconds=minimized.seconds,
            trials=minimized.trials,
            is_minimal=minimized.is_minimal,
            tried=minimized.tried,
            slipped=minimized.slipped,
            # What a replay does not show at all has shown once, or it would not be here.
            verdict="FLAKY" if minimized.verdict == "AGREES" else minimized.verdict,
        )
    )
    return minimized


def _stem(kind: Kind, folder: Path) -> str:
    """What the files of a kind are called. A trace that was saved before can show several kinds."""
    found = Path(str(kind.first.file))
    return found.stem if found.parent == folder else f"{found.stem}-{stem_of(kind.first)}"


def _check(log: RunLog, lockstep: Lockstep, pair: Pair, entry: Entry) -> None:
    holds = check(entry, lockstep, pair)
    log.tell(
        LedgerChecked(pair=pair, known=entry.name, holds=holds, rule=entry.rule, note=entry.note)
    )
