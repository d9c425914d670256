"""Hypothesis drives a pair of cores: rules, bundles and invariants over the op language.

`check_pair` is a test: it passes, or it fails with an ordinary trace of the shrunk example. Hides
how Hypothesis runs a machine, and how an error finds its way out of it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

from hypothesis import settings as Settings  # noqa: N812  It is a class, whatever its name.
from hypothesis.stateful import run_state_machine_as_test

from treedrift.harness.compare import decisive
from treedrift.harness.lockstep import Lockstep, Pair
from treedrift.harness.opening import allows_hostile, names_of, open_lockstep, replay_settings
from treedrift.harness.trace import dump_trace, new_trace, write_trace

from .hypothesis_profiles import settings_named
from .machine.auxiliary_rules import AuxiliaryRules
from .machine.base import DivergedError, Listener, TreeMachine
from .machine.hostile_rules import HostileRules
from .machine.request_rules import RequestRules
from .profiles import Profile, profile_named

FINDINGS = Path("build/findings/hypothesis")
"""Where traces of failing examples go."""


class Machine(RequestRules, AuxiliaryRules, HostileRules):
    """Every rule there is; profile and pair switch some of them off."""


class PairDivergedError(AssertionError):
    """A pair has diverged; `files` are the traces of the shrunk examples, one per signature."""

    def __init__(self, message: str, files: list[Path]) -> None:
        super().__init__(message)
        self.files = files


def machine_of(
    lockstep: Lockstep,
    profile: Profile,
    hostile: bool,
    listen: Listener = lambda config, trace: None,
) -> type[TreeMachine]:
    """The machine of open sides. `listen` hears the configuration and trace of every example."""
    bound = {
        "lockstep": lockstep,
        "profile": profile,
        "may_be_hostile": hostile,
        "listen": staticmethod(listen),
        "__doc__": Machine.__doc__,
    }
    # Hypothesis knows a machine by its name: in the database, and to derive seeds from.
    names = "_".join(names_of(lockstep.pairs))
    return type(re.sub(r"\W", "_", f"Machine_{names}_{profile.name}"), (Machine,), bound)


def check_pair(
    pair: Pair,
    profile: str = "full",
    settings: Settings | None = None,
    folder: Path = FINDINGS,
    listen: Listener = lambda config, trace: None,
) -> None:
    """Run the machine on a pair of cores; without `settings` with those of the environment.

    Raises `PairDivergedError` when they part, with the traces in `folder`; `UnknownProfileError`,
    and the registry's errors for cores.
    """
    drawn = profile_named(profile)
    chosen = settings_named() if settings is None else settings
    lockstep = open_lockstep([pair])
    try:
        machine = machine_of(lockstep, drawn, allows_hostile([pair]), listen)
        try:
            run_state_machine_as_test(machine, settings=chosen)
        except (DivergedError, BaseExceptionGroup) as error:
            found = list(_divergences(error))
            if not found:
                raise
            raise _failure(lockstep, found, folder) from error
    finally:
        lockstep.close()


def _divergences(error: BaseException) -> Iterator[DivergedError]:
    if isinstance(error, DivergedError):
        yield error
    elif isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _divergences(inner)


def _failure(lockstep: Lockstep, found: list[DivergedError], folder: Path) -> PairDivergedError:
    files, lines = [], []
    for one in found:
        path, is_steady = save(lockstep, one, folder)
        files.append(path)
        lines += [
            f"{' against '.join(one.divergence.pair)}: {one}",
            f"  {len(one.trace)} ops after shrinking, saved as {path}",
            f"  treedrift show {path}",
            f"  treedrift shrink {path}",
        ]
        if not is_steady:
            lines.append("  A replay of the trace agrees: the fault comes and goes.")
    return PairDivergedError("\n".join(lines), files)


def save(lockstep: Lockstep, found: DivergedError, folder: Path) -> tuple[Path, bool]:
    """Write the trace of a failing example, and whether a replay shows a divergence again.

    The header's signature is the replay's. The name tells the trace, so that processes which
    find the same at once write the same file, and others do not touch it.
    """
    watched = replay_settings(lockstep.pairs, found.config)
    replayed = lockstep.run(found.config, found.trace, watched).divergences
    shown = decisive(replayed) or found.divergence
    trace = new_trace(
        found.config,
        found.trace,
        note=f"{shown.kind} at {shown.op_kind}: {shown.where}"[:300],
        source="hypothesis",
        profile=found.profile,
        pair=shown.pair,
        expect="diverges",
        signature=shown.signature,
    )
    stem = re.sub(r"[^A-Za-z0-9]+", "-", f"{'-'.join(shown.pair)}-{shown.signature}").strip("-")
    digest = hashlib.sha256(dump_trace(trace)).hexdigest()[:8]
    path = folder / f"{stem[:120]}-{digest}.jsonl"
    write_trace(path, trace)
    return path, bool(replayed)
