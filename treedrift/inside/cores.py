"""Builds what SGLang's cache gets for each of the four names.

A first core serves the cache: one of SGLang's own, through SGLang's registry, so that it falls back
as ever, or one of ours behind the drop-in. A second core only shadows it, and is built from the
same parameters. Hides how SGLang's pools tell their size. It must not let a fault of a shadow or of
a recorder keep the first core from serving, unless `strict` was asked for.
"""

from __future__ import annotations

import importlib.metadata
import logging
import os
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..backends.contract import CacheInitParams, TreeCore, UnsupportedError
from ..backends.registry import (
    RELEASED,
    BackendName,
    UnknownBackendError,
    known_names,
    local_backend,
)
from ..backends.sglang.dropin import drop_in
from ..backends.sglang.initial import contract_params, reason_to_fall_back
from ..backends.sglang.methods import methods_of_release
from ..backends.sglang.release import CORE_CLASSES
from ..harness.transcript import History, PlainNames, Pseudonyms, Room, config_of
from .recording import Recording
from .reporting import Reporter
from .shadow import shadowed
from .variables import (
    AMBIGUOUS,
    FIRST_CORES,
    SHADOW_SECOND,
    TRACE_DIR,
    Settings,
    VariableError,
    hint,
    read_settings,
)
from .watched import watch

LOG = logging.getLogger("treedrift")

_OURS = "treedrift-"
# SGLang gives every process of a server the same seed, which would draw the same caches in each.
_chance = random.Random()


@dataclass(frozen=True)
class Named:
    """A core and the name by which traces and reports call it, as in `sglang-rust@0.5.23`."""

    core: Any
    name: str


# --- First cores --------------------------------------------------------------------------


def build_first(name: str, given: Any, components: Any) -> Named:
    """The core of this name for SGLang's cache; `given` is its `CacheInitParams`.

    Where SGLang's own Rust core would give way to its Python core, ours do too, with a warning.
    Raises `UnsupportedError` for what a core does not have, and errors of SGLang's own.
    """
    if name in RELEASED:
        return _released(name.removeprefix("sglang-"), given, components)
    reason = reason_to_fall_back(given)
    if reason is not None:
        LOG.warning("%s gives way to SGLang's Python core: %s", name, reason)
        return _released("python", given, components)
    ours = name.removeprefix(_OURS)
    return Named(drop_in(local_backend(ours).create(contract_params(given))), ours)


def _released(flavour: str, given: Any, components: Any) -> Named:
    from sglang.srt.mem_cache.unified_cache.tree_core_registry import create_tree_core

    core = create_tree_core(flavour, given, components)
    classes = [(kind.__module__, kind.__name__) for kind in type(core).__mro__]
    # SGLang may have fallen back: the class says which core it is.
    (flavour,) = (name for name, place in CORE_CLASSES.items() if place in classes)
    return Named(core, _with_release(f"sglang-{flavour}"))


def _with_release(name: str) -> str:
    return f"{name}@{importlib.metadata.version('sglang')}"


# --- Second cores -------------------------------------------------------------------------


def check_second(name: str) -> None:
    """Raise `VariableError` unless this is the name of a core that can shadow another."""
    if name in FIRST_CORES:
        return
    family, _, variant = name.partition(":")
    try:
        BackendName.parse(name)
    except UnknownBackendError as error:
        if variant and family in known_names():
            raise _refused(name, str(error)) from error
        if family != "drill":
            raise _refused(name, _names_of_second(name)) from error
    if family != "drill":
        return
    from ..models.drills import CANARY, DRILLS

    if not variant:
        raise _refused(name, f"name one, as in drill:{CANARY}")
    if DRILLS[variant].target != "core":
        raise _refused(
            name, "this drill spoils treedrift's cache, and here SGLang's cache is at work"
        )


def _names_of_second(name: str) -> str:
    others = [one for one in known_names() if one not in (*RELEASED, *AMBIGUOUS, "drill")]
    names = [*FIRST_CORES, *others, "drill:NAME"]
    return f"must be one of {', '.join(names)}{hint(name, names)}"


def _refused(name: str, why: str) -> VariableError:
    return VariableError(f"{SHADOW_SECOND.name}={name!r}: {why}")


def build_second(name: str, params: CacheInitParams) -> TreeCore:
    """The core of this name in the contract's terms.

    Raises the registry's errors, and `UnsupportedError` for what it does not have.
    """
    return local_backend(name.removeprefix(_OURS)).create(params)


def _second_name(name: str) -> str:
    return _with_release(name) if name in RELEASED else name.removeprefix(_OURS)


# --- Shadow and recorder ------------------------------------------------------------------


def build_shadowed(given: Any, components: Any) -> Any:
    """A first core with a second one in its shadow, as the variables say.

    Without a second core, because the cache was not drawn or it can't be built, the first serves
    alone. Raises `VariableError`, what building the first raises, and in strict mode whatever
    keeps it from being shadowed.
    """
    settings = read_settings()
    check_second(settings.second)
    first = build_first(settings.first, given, components)
    if _chance.random() >= settings.sample:
        LOG.info("treedrift shadow: this cache was not drawn; %s serves it alone", first.name)
        return first.core
    pair = (first.name, _second_name(settings.second))
    plain = not settings.pseudonyms
    folder, no_trace = settings.trace_dir, _why_no_trace(settings.trace_dir)
    reporter = Reporter(pair, folder, settings.trace_files, no_trace, plain)
    reporter.is_strict = settings.strict
    try:
        params = contract_params(given)
    except Exception as error:
        reporter.fault(error)
        if settings.strict:
            raise
        return first.core
    core = shadowed(
        first.core,
        methods_of_release(),
        lambda: build_second(settings.second, params),
        params.tree_components,
        reporter,
        lambda: History(config_of(params, room_of(given)), settings.trace_bytes, _naming(settings)),
        sizes_every=settings.sizes_every,
        strict=settings.strict,
    )
    if reporter.status.is_on:
        why = reporter.no_trace
        saved = f"no trace will be saved: {why}" if why else f"traces go to {folder}"
        # Whoever named a folder counts on it.
        level = logging.WARNING if folder and why else logging.INFO
        LOG.log(level, "treedrift shadow: %s serves this cache, %s follows; %s", *pair, saved)
    return core


def build_recorded(given: Any, components: Any) -> Any:
    """A core whose calls are written to files, as the variables say.

    Without a folder, or where nothing can be recorded, it serves unrecorded, with a warning.
    Raises `VariableError`, and what building the core raises.
    """
    settings = read_settings()
    first = build_first(settings.record_core, given, components)
    try:
        if settings.trace_dir is None:
            raise UnsupportedError(f"{TRACE_DIR.name} names no folder")
        recording = Recording(
            settings.trace_dir,
            config_of(contract_params(given), room_of(given)),
            bytes_max=settings.trace_bytes,
            files_max=settings.trace_files,
            naming=_naming(settings),
            source=f"calls of SGLang's cache on {first.name}",
        )
        core = watch(first.core, methods_of_release(), recording)
    except Exception as error:
        if isinstance(error, OSError) and settings.trace_dir is not None:
            error = VariableError(_folder_failed(settings.trace_dir, error))
        LOG.warning("%s serves unrecorded: %s", first.name, error)
        return first.core
    LOG.info("treedrift recorder: %s serves, traces go to %s", first.name, settings.trace_dir)
    return core


def _naming(settings: Settings) -> type[Pseudonyms] | type[PlainNames]:
    return Pseudonyms if settings.pseudonyms else PlainNames


# --- Folders ------------------------------------------------------------------------------


def _why_no_trace(folder: Path | None) -> str:
    """Why the folder can't take traces, found out while somebody looks; "" if it can."""
    if folder is None:
        return ""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return _folder_failed(folder, error)
    if os.access(folder, os.W_OK | os.X_OK):
        return ""
    return f"{TRACE_DIR.name}={str(folder)!r}: no file can be made there"


def _folder_failed(folder: Path, error: OSError) -> str:
    return f"{TRACE_DIR.name}={str(folder)!r}: {error.strerror or error}"


# --- Pools --------------------------------------------------------------------------------


def room_of(given: Any) -> Room:
    """How much SGLang's pools hold, by looking at whatever pools it has.

    Raises `UnsupportedError` for a cache without pools, of which no trace can be made.
    """
    allocator, rows = given.token_to_kv_pool_allocator, given.req_to_token_pool
    slots = _size(allocator, "size_full", "size")
    if slots is None:
        raise UnsupportedError("a trace needs pools that tell their size; this cache has none")
    longest = _size(rows, "max_context_len")
    is_ring = bool(getattr(allocator, "swa_req_ring", False))
    return Room(
        slots=slots,
        row_length=slots if longest is None else min(longest, slots),
        window_slots=None if is_ring else _size(allocator, "size_swa"),
        states=_size(getattr(rows, "mamba_pool", None), "size"),
    )


def _size(pool: Any, *names: str) -> int | None:
    """The first of these attributes that is a positive number."""
    for name in names:
        value = getattr(pool, name, None)
        if isinstance(value, int) and value > 0:
            return value
    return None
