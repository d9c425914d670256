"""The settings of a core as its cache has assigned them, told as `set_flag` when they change."""

from __future__ import annotations

from typing import Any

from ..config import Config
from ..ops import Flag, SetFlag

FLAGS: dict[str, Flag] = {
    "enable_storage =": "storage",
    "enable_external_cache_linker =": "linker",
    "write_through_threshold =": "write_through_threshold",
    "is_write_back =": "write_back",
}
"""Assignments that an op tells, as calls name them."""

_DEFAULTS = Config()


class Flags:
    """Values of all settings. A replay starts from the defaults of `Config`."""

    def __init__(self) -> None:
        self._values: dict[Flag, int] = dict.fromkeys((*FLAGS.values(), "buffer_only"), 0)
        self._values["write_through_threshold"] = _DEFAULTS.write_through_threshold

    @property
    def is_write_back(self) -> bool:
        """Whether evicted leaves ask for a backup first."""
        return bool(self._values["write_back"])

    def assign(self, flag: Flag, value: Any) -> SetFlag | None:
        """The op that tells of a new value; None if it is the old one."""
        if self._values[flag] == int(value):
            return None
        self._values[flag] = int(value)
        return SetFlag(flag, int(value))

    def opening(self) -> list[SetFlag]:
        """Ops that bring a fresh replay to the values of now."""
        fresh = Flags()
        return [
            SetFlag(flag, now) for flag, now in self._values.items() if fresh._values[flag] != now
        ]
