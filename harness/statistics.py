"""Vacuity: for each method, parameter and result field, whether it ever left its default.

It is read from a sample of observations. A field that never varies is not compared, it is only
equal.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from ..backends import contract
from .observation import Observation
from .recorder import parameters_of, recorded_methods

DEFAULTS = {
    name: dict(
        zip(
            kind.__struct_fields__[-len(kind.__struct_defaults__) :],
            kind.__struct_defaults__,
            strict=True,
        )
    )
    if kind.__struct_defaults__
    else {}
    for name, kind in vars(contract).items()
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct)
}
FIELDS = {
    name: kind.__struct_fields__
    for name, kind in vars(contract).items()
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct)
}


class Vacuity:
    """Methods called, and record fields that were seen with something else than their default."""

    def __init__(self) -> None:
        self.methods: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.varied: set[str] = set()
        self.seen: set[str] = set()

    def read(self, seen: Observation) -> None:
        """Take one observation into account."""
        for call in seen.calls:
            self.methods[call[0]] += 1
            if len(call) < 3:
                continue
            self._arguments(call)
            end = call[2]
            if end[0] == "error":
                self.errors[f"{call[0]}.{end[1]}"] += 1
            else:
                self._walk(end[1])

    def _arguments(self, call: list[Any]) -> None:
        for name, item in zip(parameters_of(call[0]), call[1], strict=False):
            self.varied.add(f"{call[0]}({name})")
            self._walk(item)

    def _walk(self, item: Any) -> None:
        if isinstance(item, list):
            if item and isinstance(item[0], str) and item[0] in FIELDS:
                self._record(item)
            for inner in item:
                self._walk(inner)

    def _record(self, item: list[Any]) -> None:
        kind = item[0]
        defaults = DEFAULTS[kind]
        for name, found in zip(FIELDS[kind], item[1:], strict=False):
            field = f"{kind}.{name}"
            self.seen.add(field)
            default = defaults.get(name, msgspec.NODEFAULT)
            plain = (
                default if isinstance(default, (int, str, bool, type(None))) else msgspec.NODEFAULT
            )
            empty = plain is msgspec.NODEFAULT and name in defaults and found in ([], {}, None)
            if not empty and (plain is msgspec.NODEFAULT or found != plain):
                self.varied.add(field)

    def never_varied(self) -> list[str]:
        """Fields that were seen, but never with anything else than their default."""
        return sorted(self.seen - self.varied)

    def never_called(self) -> list[str]:
        """Methods of the contract that no op of the sample called."""
        return sorted(set(recorded_methods()) - set(self.methods))
