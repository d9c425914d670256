"""A release of SGLang that is none: its types are made of the contract's, changed as one likes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import Any, cast

from treedrift.backends import contract
from treedrift.backends.sglang.pairing import paired_types
from treedrift.backends.sglang.release import REQUIRED, Release, fields_of

_ENUMS = ("ComponentType", "PoolName", "PoolHitPolicy", "CacheTransferPhase", "StorageMedium")

Fields = Mapping[str, Any]
"""Defaults by field; `REQUIRED` for none."""


def _enumeration(name: str) -> Any:
    ours = getattr(contract, name)
    members = {member.name: member.value for member in ours}
    kind = IntEnum if issubclass(ours, IntEnum) else Enum
    return kind(name, members) if kind is IntEnum else Enum(name, members, type=str)


def stand_in_type(name: str, more: Fields | None = None, less: frozenset[str] = frozenset()) -> Any:
    """A dataclass with the fields of the contract's type, without `less` and with `more`."""
    found = fields_of(paired_types()[name])
    made = {field: default for field, default in found.items() if field not in less}
    made.update({field: _maker(default) for field, default in (more or {}).items()})
    columns = [
        (field, Any, dataclasses.field(kw_only=True))
        if default is REQUIRED
        else (field, Any, dataclasses.field(default_factory=default, kw_only=True))
        for field, default in made.items()
    ]
    return dataclasses.make_dataclass(name, columns)


def _maker(default: Any) -> Any:
    return default if default is REQUIRED else lambda: default


class StandInRelease:
    """Answers as `Release` does; `changed` replaces types, and None takes one away."""

    def __init__(self, **changed: Any) -> None:
        self.missing: set[str] = set()
        self._types = {name: stand_in_type(name) for name in paired_types()}
        self._types |= {name: _enumeration(name) for name in _ENUMS}
        self._types |= changed

    def find(self, name: str) -> Any:
        return self._types.get(name)

    def type(self, name: str) -> Any:
        return self._types[name]

    def note_missing(self, owner: str, names: set[str]) -> None:
        self.missing.update(f"{owner}.{name}" for name in names)


def stand_in(**changed: Any) -> Release:
    """A stand-in where a release is asked for."""
    return cast(Release, StandInRelease(**changed))
