"""The cores by name: ours, the released ones, and those that other packages bring.

A name may say where the core lives, as in `sglang-rust@0.5.23`: a managed environment or the path
of an interpreter. A plugin may bring a family of cores, named `family:variant`. Cores are imported
when they are asked for, so that one that can't be built hides no other.
Hides entry points. Runs in foreign environments too.
"""

from __future__ import annotations

import difflib
import importlib.metadata
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from .contract import CacheInitParams, TreeCore
from .inspection import TreeSnapshot
from .sglang.environments import Environment, MissingEnvironmentError, environments, resolve

ENTRY_POINTS = "treedrift.backends"
"""Entry point group of cores in other packages; see `Plugin`."""

Inspector = Callable[[TreeCore], TreeSnapshot]


class BackendError(Exception):
    """Base of the errors here."""


class UnknownBackendError(BackendError):
    """No core has this name; the message gives the closest one and all that are known."""


class UnavailableBackendError(BackendError):
    """The core exists and can't be used here; the message says why and what to do."""


class Plugin(Protocol):
    """What an entry point of `treedrift.backends` gives."""

    def create(self, params: CacheInitParams) -> TreeCore:
        """Build an empty core. Raises the contract's errors."""


class Family(Protocol):
    """What an entry point gives that brings many cores at once, such as the drills."""

    def variants(self) -> list[str]:
        """Names of all cores of the family, in order."""

    def variant(self, name: str) -> Plugin:
        """The core of that name, which is one of `variants()`."""


@dataclass(frozen=True)
class Backend:
    """A core that can be built in this process. `inspect` is None where a core shows nothing.

    `prepare_cache` gets each new cache on top of such a core; a drill of the cache spoils it there.
    """

    name: str
    create: Callable[[CacheInitParams], TreeCore]
    inspect: Inspector | None = None
    prepare_cache: Callable[[Any], None] | None = None


@dataclass(frozen=True)
class BackendName:
    """A core's name and, after `@`, where it lives: a release, an environment or an interpreter."""

    name: str
    environment: str | None = None

    @classmethod
    def parse(cls, text: str) -> BackendName:
        """Read `name` or `name@environment`. Raises `UnknownBackendError`.

        A core that isn't one of the built-in ones must be installed here, or name an environment
        in which it is.
        """
        name, at, environment = text.strip().partition("@")
        if at and not environment:
            raise UnknownBackendError(f"{text!r} names no environment after the @")
        if not environment and name not in known_names() and not _is_variant(name):
            raise _unknown(name)
        return cls(name, environment or None)

    @property
    def family(self) -> str:
        """The name without its variant."""
        return self.name.partition(":")[0]

    def place(self) -> Environment | None:
        """The environment that the core runs in; None for this process's own interpreter.

        A released core without an environment runs in the newest managed one. Raises
        `MissingEnvironmentError`.
        """
        if self.environment is None and self.name not in RELEASED:
            return None
        return resolve(self.environment)

    def __str__(self) -> str:
        return self.name if self.environment is None else f"{self.name}@{self.environment}"


@dataclass(frozen=True)
class BackendStatus:
    """One line of `treedrift backends`. `why` says why it isn't available, or where it lives."""

    name: str
    is_available: bool
    can_inspect: bool
    why: str


# --- Built-in cores -----------------------------------------------------------------------


def _python() -> Backend:
    from .python_core import PythonTreeCore
    from .python_core.inspection import inspect_tree

    def inspect(core: TreeCore) -> TreeSnapshot:
        assert isinstance(core, PythonTreeCore)
        return inspect_tree(core)

    return Backend("python", PythonTreeCore, inspect)


def _rust() -> Backend:
    from .rust_core import RustTreeCore, inspector
    from .rust_core.native import default_native

    try:
        default_native()
    except ImportError as error:
        raise UnavailableBackendError(f"rust isn't built here; make setup ({error})") from error
    return Backend("rust", RustTreeCore, inspector())


def _released(flavour: str) -> Callable[[], Backend]:
    def load() -> Backend:
        from .sglang.adapter import SglangCore
        from .sglang.construct import plug_in

        # SGLang is imported now, which takes seconds, and not when the first core is built.
        plug_in(flavour)
        return Backend(f"sglang-{flavour}", lambda params: SglangCore(params, flavour))

    return load


RELEASED = ("sglang-python", "sglang-rust")
"""Cores that live in the environment of a released SGLang."""

_BUILT_IN: dict[str, Callable[[], Backend]] = {
    "python": _python,
    "rust": _rust,
    "sglang-python": _released("python"),
    "sglang-rust": _released("rust"),
}


# --- Looking up ---------------------------------------------------------------------------


def known_names() -> list[str]:
    """Names of all cores that are known here, the built-in ones first."""
    return [*_BUILT_IN, *sorted(set(_entry_points()) - set(_BUILT_IN))]


def local_backend(name: str) -> Backend:
    """The core of this name in this process.

    A released core is local in an interpreter that has SGLang, which is where its worker runs.
    Raises `UnknownBackendError`, `UnavailableBackendError`.
    """
    if name in _BUILT_IN:
        if name in RELEASED and importlib.util.find_spec("sglang") is None:
            raise UnavailableBackendError(f"{name} needs an interpreter that has sglang")
        load = _BUILT_IN[name]
    elif name.partition(":")[0] in (found := _entry_points()):
        load = _plugged(name, found[name.partition(":")[0]])
    else:
        raise _unknown(name)
    try:
        return load()
    except BackendError:
        raise
    except Exception as error:
        raise UnavailableBackendError(f"{name} can't be loaded: {error}") from error


def list_backends() -> list[BackendStatus]:
    """Every known core, with whether it can be used and why not.

    A released core has one line for each managed environment.
    """
    found: list[BackendStatus] = []
    for name in known_names():
        if name in RELEASED:
            found += _released_statuses(name)
        elif family := _family(name):
            how_many = f"{len(family)} cores, named {name}:{family[0]} and so on"
            found.append(BackendStatus(f"{name}:...", True, True, how_many))
        else:
            found.append(_status(name))
    return found


def _status(name: str) -> BackendStatus:
    try:
        backend = local_backend(name)
    except BackendError as error:
        return BackendStatus(name, False, False, str(error))
    return BackendStatus(name, True, backend.inspect is not None, "in this interpreter")


def _family(name: str) -> list[str]:
    """Names of the variants of a plugged-in family; none for a single core or a broken plugin."""
    found = _entry_points().get(name)
    try:
        return _variants(found.load()) if found is not None else []
    except Exception:
        return []  # Its own line says why it can't be loaded.


def _released_statuses(name: str) -> list[BackendStatus]:
    places = environments()
    if not places:
        try:
            resolve()
        except MissingEnvironmentError as error:
            return [BackendStatus(name, False, False, str(error))]
    return [
        BackendStatus(f"{name}@{one.release}", True, False, str(one.interpreter)) for one in places
    ]


def _entry_points() -> dict[str, importlib.metadata.EntryPoint]:
    return {one.name: one for one in importlib.metadata.entry_points(group=ENTRY_POINTS)}


def _plugged(name: str, entry_point: importlib.metadata.EntryPoint) -> Callable[[], Backend]:
    def load() -> Backend:
        plugin: Any = entry_point.load()
        _, colon, variant = name.partition(":")
        if colon:
            if variant not in _variants(plugin):
                raise _unknown(name)
            plugin = plugin.variant(variant)
        if not callable(getattr(plugin, "create", None)):
            raise UnavailableBackendError(f"{name}: {entry_point.value} has no create(params)")
        inspect = getattr(plugin, "inspect", None)
        return Backend(name, plugin.create, inspect, getattr(plugin, "prepare_cache", None))

    return load


def _variants(plugin: Any) -> list[str]:
    variants = getattr(plugin, "variants", None)
    return list(variants()) if callable(variants) else []


def _is_variant(name: str) -> bool:
    """Whether a name is that of a core of a family. Loads the family."""
    family, colon, variant = name.partition(":")
    found = _entry_points().get(family) if colon else None
    return found is not None and variant in _variants(found.load())


def _unknown(name: str) -> UnknownBackendError:
    family, colon, variant = name.partition(":")
    found = _entry_points().get(family) if colon else None
    if found is not None:
        names = _variants(found.load())
        close = difflib.get_close_matches(variant, names, n=1)
        hint = f"; did you mean {family}:{close[0]}?" if close else ""
        return UnknownBackendError(f"{family} has no variant {variant!r}{hint}")
    names = known_names()
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    return UnknownBackendError(f"no core {name!r}{hint} (there are: {', '.join(names)})")
