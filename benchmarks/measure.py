"""Runs the log and the swarm, round after round, every core in every round.

Hides where a core lives: a released one runs in its worker, and its time is what its own adapter
counts, without the conversions; ours are timed around the whole call, conversions included.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from pathlib import Path
from time import process_time

import msgspec

from treedrift.backends.registry import BackendError, BackendName, local_backend
from treedrift.backends.sglang.environments import MissingEnvironmentError
from treedrift.harness.config import Config
from treedrift.harness.importers.mooncake import ImportOptions, import_mooncake
from treedrift.harness.lockstep import BATCH_OPS, Client, Lockstep
from treedrift.harness.opening import open_lockstep, settings_for
from treedrift.harness.ops import AnyOp
from treedrift.harness.remote import RemoteError, WorkerFailure
from treedrift.harness.side import LocalSide, Settings, collect_rarely
from treedrift.models.profiles import profile_named
from treedrift.models.swarm import campaign_case

from .floor import Floor, Move, counting

NEVER = 2**62
LOG_SETTINGS = Settings(tree_every=NEVER, watch_free_list=False, model=False)
"""Nothing is looked at but what ops show, as a replay of a log with a large pool does."""

SWARM_SEED = 1_000_003


class Times(msgspec.Struct):
    """Milliseconds a request: one per round, in the core and outside it on the same side."""

    core: list[float]
    harness: list[float]


Run = tuple[Client, Config, Sequence[AnyOp]]
"""A core and what it is to run."""


def open_cores(names: Sequence[str]) -> tuple[dict[str, Lockstep], dict[str, str]]:
    """A side for every core that there is, and for the others the reason why there is none."""
    found: dict[str, Lockstep] = {}
    missing: dict[str, str] = {}
    for name in names:
        try:
            found[name] = open_lockstep([(name, name)])
        except (BackendError, MissingEnvironmentError, WorkerFailure, RemoteError) as error:
            missing[name] = str(error).split("\n", 1)[0]
    collect_rarely()  # As a campaign does once its sides are open.
    return found, missing


def read_log(
    path: Path, requests: int, page_size: int, components: tuple[str, ...] = ("full",)
) -> tuple[Config, list[AnyOp]]:
    """The configuration and the ops of the first `requests` of a log."""
    options = ImportOptions(limit=requests, page_size=page_size, components=components)
    config, ops = import_mooncake(path, options)
    return config, list(ops)


def run_log(client: Client, config: Config, ops: Sequence[AnyOp]) -> tuple[float, float]:
    """Milliseconds a request in the core and outside it, of one run of the log."""
    refused = client.open(config, LOG_SETTINGS)
    if refused is not None:
        raise RuntimeError(f"{client.name} refuses the log's configuration: {refused}")
    gc.collect()
    for start in range(0, len(ops), BATCH_OPS):
        client.submit(ops[start : start + BATCH_OPS])
        client.collect()
    figures = client.figures()
    scale = 1e6 * figures["requests"]
    return figures["core_ns"] / scale, (figures["total_ns"] - figures["core_ns"]) / scale


def time_runs(runs: dict[str, Run], rounds: int, tick: Callable[[str], None]) -> dict[str, Times]:
    """Times of every run, interleaved; the first one changes from round to round."""
    times = {name: Times([], []) for name in runs}
    names = list(runs)
    for number in range(rounds):
        shift = number % len(names) if names else 0
        for name in names[shift:] + names[:shift]:
            core, harness = run_log(*runs[name])
            times[name].core.append(core)
            times[name].harness.append(harness)
            tick(name)
    return times


def time_floor(config: Config, ops: Sequence[AnyOp], requests: int, rounds: int) -> list[float]:
    """Milliseconds a request that touching the bytes alone takes, one per round."""
    moves: list[Move] = []
    side = LocalSide(counting(local_backend("python").create, moves))
    side.open(config, LOG_SETTINGS)
    side.run(ops)
    floor = Floor()
    return [floor.nanoseconds(moves) / 1e6 / requests for _ in range(rounds)]


def swarm_rate(pair: tuple[str, str], op_count: int) -> float:
    """Ops a second of processor time that one process runs through a pair, generation included."""
    lockstep = open_lockstep([pair])
    collect_rarely()  # As a campaign does.
    settings = settings_for([pair])
    profile = profile_named("full")
    done, seed = 0, SWARM_SEED
    started = process_time()
    try:
        while done < op_count:
            config, ops = campaign_case(seed, profile, hostile=True)
            done += lockstep.run(config, ops, settings).op_count
            seed += 1
    finally:
        lockstep.close()
    return done / (process_time() - started)


def newest_name(text: str) -> str:
    """The name of a released core with the release that it runs in, as far as there is one."""
    try:
        place = BackendName.parse(text).place()
    except (BackendError, MissingEnvironmentError):
        return text
    return text if place is None or "@" in text else f"{text}@{place.release}"
