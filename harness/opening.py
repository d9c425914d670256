"""Opens the sides of pairs by name, and says how closely they can be watched."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from ..backends.registry import RELEASED, Backend, BackendName, local_backend
from .config import Config
from .lockstep import Client, LocalClient, Lockstep, Pair, RemoteClient
from .remote import Worker, core_command
from .side import LocalSide, Settings

UNORDERED_CORES = frozenset({"sglang-rust"})
"""Cores that return some results in an arbitrary order (BND-41)."""

STRICT_CORES = frozenset({"python", "rust", "drill"})
"""Cores that answer calls out of protocol alike; only they are given hostile ops."""

WORKER_BYTES_MAX = 12 * 2**30
"""Resident memory at which a worker counts as running away."""

SMALL_POOL = 4096
"""Up to so many slots a replay looks at everything after every op; above it at the end alone."""

NEVER = 2**62


def names_of(pairs: Sequence[Pair]) -> list[str]:
    """Every core of the pairs, once, in order."""
    return list(dict.fromkeys(name for pair in pairs for name in pair))


def settings_for(pairs: Sequence[Pair], device: str = "cpu", **fields: Any) -> Settings:
    """How the sides of these pairs are watched: as closely as all of their cores allow."""
    parsed = [BackendName.parse(name) for name in names_of(pairs)]
    inspects = all(name.name not in RELEASED and _inspects(name.name) for name in parsed)
    ordered = not {name.name for name in parsed} & UNORDERED_CORES
    return Settings(inspect=inspects, ordered=ordered, device=device, **fields)


def replay_settings(pairs: Sequence[Pair], config: Config, device: str = "cpu") -> Settings:
    """How a saved trace is watched: everything after every op, unless its pools are large.

    The signature that a trace carries is what these settings show.
    """
    return _replay_settings(tuple(pairs), config.capacity <= SMALL_POOL, device)


@lru_cache
def _replay_settings(pairs: tuple[Pair, ...], is_small: bool, device: str) -> Settings:
    """Of a configuration only the size of its pools counts; looking cores up takes its time."""
    every = 1 if is_small else NEVER
    return settings_for(pairs, device, tree_every=every, watch_free_list=is_small, model=is_small)


def _inspects(core: str) -> bool:
    return local_backend(core).inspect is not None


def open_lockstep(pairs: Sequence[Pair]) -> Lockstep:
    """Sides for all cores of the pairs. Raises the registry's and the environments' errors."""
    clients: dict[str, Client] = {}
    try:
        for name in names_of(pairs):
            clients[name] = _open_client(name)
    except BaseException:
        for client in clients.values():
            client.close()
        raise
    return Lockstep(clients, pairs)


def _open_client(name: str) -> Client:
    parsed = BackendName.parse(name)
    if parsed.place() is None:
        backend: Backend = local_backend(parsed.name)
        side = LocalSide(backend.create, backend.inspect, backend.prepare_cache)
        return LocalClient(name, side)
    worker = Worker(core_command(parsed), memory_bytes_max=WORKER_BYTES_MAX)
    worker.launch()  # Importing a server takes seconds; several workers do it at once.
    return RemoteClient(name, worker)


def allows_hostile(pairs: Sequence[Pair]) -> bool:
    """Whether every core of the pairs is one that refuses bad calls alike."""
    return all(BackendName.parse(name).family in STRICT_CORES for name in names_of(pairs))
