"""Build released cores on their own, without SGLang's cache (PLUG-2 to PLUG-4).

What is found out about the installed release is found out once per process.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from ..contract import CacheInitParams
from .call import translated
from .components import build_components, published, refuse_unplugged
from .release import CORE_CLASSES, Release, lacking_methods
from .values import Values


@dataclass(frozen=True)
class Plug:
    """One flavour of core in the installed release, and how to speak to it.

    `missing` names what of the contract the release lacks, as in "BlockStored.lora_name".
    """

    flavour: str
    release: Release
    values: Values
    core_class: Any
    methods_lacking: frozenset[str]
    parameters_lacking: dict[str, set[str]]
    missing: tuple[str, ...]


@cache
def plug_in(flavour: str) -> Plug:
    """Import the installed release and look at its core of `flavour` ("python" or "rust").

    Raises `ReleaseMismatchError`, and `ValueError` for another flavour.
    """
    if flavour not in CORE_CLASSES:
        raise ValueError(f"no released core {flavour!r}; there are {sorted(CORE_CLASSES)}")
    release = Release()
    values = Values(release)
    core_class = release.core_class(flavour)
    methods, parameters = lacking_methods(core_class)
    release.note_missing("TreeCore", methods)
    for name, lacking in parameters.items():
        release.note_missing(f"TreeCore.{name}", lacking)
    missing = tuple(sorted(release.missing))
    return Plug(flavour, release, values, core_class, frozenset(methods), parameters, missing)


def build_core(plug: Plug, params: CacheInitParams) -> Any:
    """A released core.

    Raises the contract's errors for parameters that the release refuses, and `UnsupportedError`
    for a component that can't be plugged in.
    """
    refuse_unplugged(params)
    given = plug.values.param_in(params)
    try:
        with published(params):
            if plug.flavour == "rust":
                return plug.core_class(given)
            built = build_components(plug.release, plug.values, given, params)
            return plug.core_class(given, built)
    except BaseException as error:
        known = translated(error, "__init__", plug.release.type("ComponentType"))
        if known is error:
            raise
        raise known from error
