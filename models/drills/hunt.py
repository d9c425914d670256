"""Looks for one drill with random cases, and shrinks what shows it.

A hunt runs the cases of a campaign against a sound core, until the first divergence or until the
time is up. The trace up to that divergence is replayed with everything watched after every op:
what that shows is the signature of record. Shrinking is a function that is handed in.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from time import monotonic
from typing import Any, Protocol

import msgspec

from treedrift.harness.campaign import numbered
from treedrift.harness.compare import Divergence, decisive
from treedrift.harness.config import Config
from treedrift.harness.lockstep import Lockstep, Pair
from treedrift.harness.opening import open_lockstep, replay_settings, settings_for
from treedrift.harness.ops import AnyOp
from treedrift.harness.side import Settings
from treedrift.harness.trace import Trace, new_trace

from ..profiles import profile_named
from ..swarm import campaign_case
from .drill import Drill


class Minimizer(Protocol):
    """What shrinks a trace: `harness.minimize.minimize`."""

    def __call__(
        self,
        trace: Trace,
        pair: Pair,
        *,
        signature: str | None = None,
        budget_seconds: float = 30.0,
    ) -> Any:
        """The smallest trace found within the budget that still shows the signature."""


class Catch(msgspec.Struct, kw_only=True):
    """What a hunt gave.

    `by` is the signature of the first divergence, which tells kind, op and place; `signature` that
    of the replayed `trace`, which ends where the cores part. `ops`, `cases` and `seconds` count up
    to the first catch, or the whole hunt. What follows is None or empty without shrinking.
    """

    drill: str
    caught: bool
    by: str | None = None
    signature: str | None = None
    ops: int = 0
    cases: int = 0
    seconds: float = 0.0
    trace: Trace | None = None
    shrunk: Trace | None = None
    replayed: str | None = None
    shrink_seconds: float | None = None
    is_minimal: bool | None = None

    @property
    def size(self) -> int | None:
        """Ops after shrinking; None without it."""
        return None if self.shrunk is None else len(self.shrunk.ops)


def pair_of(drill: Drill) -> Pair:
    """The sound core and the spoilt one."""
    return ("python", f"drill:{drill.name}")


def hunt(
    drill: Drill,
    seconds: float,
    seed: int,
    minimizer: Minimizer | None = None,
    shrink_seconds: float = 30.0,
) -> Catch:
    """Look for a drill of `DRILLS` for at most so long; with a minimizer, shrink what shows it."""
    lockstep = open_lockstep([pair_of(drill)])
    try:
        catch = _search(drill, lockstep, seconds, seed)
        if catch.trace is not None:
            catch.signature = _replayed_signature(drill, lockstep, catch.trace) or catch.by
            catch.trace.header.signature = catch.signature
    finally:
        lockstep.close()
    if minimizer is not None and catch.trace is not None:
        _shrink(catch, pair_of(drill), minimizer, shrink_seconds)
    return catch


def _search(drill: Drill, lockstep: Lockstep, seconds: float, seed: int) -> Catch:
    started = monotonic()
    catch = Catch(drill=drill.name, caught=False)
    settings = settings_for([pair_of(drill)])

    def is_up() -> bool:
        return monotonic() - started > seconds

    for number, config, ops in _cases(drill, seed):
        if is_up():
            break
        # A case that the time cuts short is compared as far as it came.
        result = lockstep.run(config, takewhile(lambda _: not is_up(), ops), settings)
        found = decisive(result.divergences)
        catch.cases += 1
        if found is not None:
            end = result.op_count if found.op_index is None else found.op_index + 1
            catch.caught, catch.by = True, found.signature
            catch.trace = _trace(drill, config, ops[:end], number, found)
            catch.ops += end
            break
        catch.ops += result.op_count
    catch.seconds = monotonic() - started
    return catch


def _cases(drill: Drill, seed: int) -> Iterator[tuple[int, Config, list[AnyOp]]]:
    profile = profile_named(drill.profile)
    for number in numbered(seed):
        config, ops = campaign_case(number, profile, hostile=True)
        yield number, config, ops


def _trace(drill: Drill, config: Config, ops: list[AnyOp], number: int, found: Divergence) -> Trace:
    return new_trace(
        config,
        ops,
        note=f"{drill.name}: {drill.about}",
        source="drills",
        seed=number,
        profile=drill.profile,
        pair=found.pair,
        expect="diverges",
        rule=drill.rule,
    )


def _replayed_signature(drill: Drill, lockstep: Lockstep, trace: Trace) -> str | None:
    config = trace.header.config
    settings: Settings = replay_settings([pair_of(drill)], config)
    found = decisive(lockstep.run(config, trace.ops, settings).divergences)
    return None if found is None else found.signature


def _shrink(catch: Catch, pair: Pair, minimizer: Minimizer, seconds: float) -> None:
    assert catch.trace is not None
    made = minimizer(catch.trace, pair, signature=catch.signature, budget_seconds=seconds)
    catch.shrunk = made.trace
    catch.replayed = made.replayed
    catch.shrink_seconds = made.seconds
    catch.is_minimal = made.is_minimal
