"""The run so far of a watched core, in memory: what is saved when something is found."""

from __future__ import annotations

from typing import Any

import msgspec

from ..config import Config
from ..trace import Trace, parse_trace
from .call import Call
from .part import NamingKind, Part
from .pseudonyms import Pseudonyms


class History:
    """The calls of one cache since its tree was last empty, as long as that is not too much.

    A reset of the core begins anew. So does `bytes_max` of ops, or a naming that is full: then the
    run so far lacks its beginning, and its note says how many calls that is.
    """

    def __init__(
        self, config: Config, bytes_max: int = 64 * 2**20, naming: NamingKind = Pseudonyms
    ) -> None:
        self._bytes_max = bytes_max
        self.lacks_last = False
        """Whether the last call could not be told, so that the run so far ends before it."""
        self._begin(Part(config, naming))

    def _begin(self, part: Part) -> None:
        self._part = part
        self._lines = part.opening()
        self._size = sum(map(len, self._lines))

    def add(self, call: Call) -> None:
        """A call has ended."""
        self.lacks_last = False
        if call.method == "reset" and call.error is None:
            self._begin(self._part.after_reset())
            return
        if self._part.is_between and (self._part.is_full or self._size > self._bytes_max):
            self._begin(self._part.after())
        left_out = self._part.left_out
        lines = self._part.tell(call)
        self.lacks_last = self._part.left_out > left_out
        self._lines += lines
        self._size += sum(map(len, lines))

    def trace(self, **header: Any) -> Trace:
        """The run so far, an insert in flight as far as it got; `header` are further fields.

        Nothing is to be added afterwards.
        """
        self._lines += self._part.finish()
        first = msgspec.json.encode(self._part.header(**header)) + b"\n"
        return parse_trace(b"".join([first, *self._lines]), "the run so far")
