"""One part of a long transcript, which is a trace by itself: its lines, its header, its note."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from ..config import Config
from ..ops import AnyOp, Reset
from ..trace import FORMAT_VERSION, Header
from .call import Call
from .flags import Flags
from .pseudonyms import Naming
from .transcript import Transcript

NamingKind = Callable[[], Naming]
"""What makes a fresh naming: `Pseudonyms` or `PlainNames`."""

_ENCODER = msgspec.json.Encoder()


class Part:
    """Calls from one moment on, as lines of a trace whose tree is empty at that moment.

    `missed` calls came before it on the same tree; `flags` are the settings that they left. With
    `is_reset` the tree is empty because it was emptied, which then is the first thing told.
    """

    def __init__(
        self,
        config: Config,
        naming: NamingKind,
        *,
        missed: int = 0,
        flags: Flags | None = None,
        is_reset: bool = False,
    ) -> None:
        self._config = config
        self._make_naming = naming
        self._naming = naming()
        self._missed = missed
        self._is_reset = is_reset
        self._transcript = Transcript(config, self._naming, flags)

    @property
    def is_full(self) -> bool:
        """Whether its naming has no memory left."""
        return self._naming.is_full

    @property
    def is_between(self) -> bool:
        """Whether another part could go on from here."""
        return self._transcript.is_between

    @property
    def left_out(self) -> int:
        """How many calls could not be told so far: the note changes with it."""
        return self._transcript.untold.total()

    def after(self) -> Part:
        """The part that goes on from here, on a tree that it does not know."""
        missed, flags = self._missed + self._transcript.calls, self._transcript.flags
        return Part(self._config, self._make_naming, missed=missed, flags=flags)

    def after_reset(self) -> Part:
        """The part that goes on after a reset, which left nothing to know."""
        is_reset = self._is_reset or self._transcript.has_begun
        flags = self._transcript.flags
        return Part(self._config, self._make_naming, flags=flags, is_reset=is_reset)

    def opening(self) -> list[bytes]:
        """Lines that come first: the settings of its start, and the reset before it."""
        resets: list[AnyOp] = [Reset()] if self._is_reset else []
        return _lines([*self._transcript.flags.opening(), *resets])

    def tell(self, call: Call) -> list[bytes]:
        """The lines of one call."""
        return _lines(self._transcript.tell(call))

    def finish(self) -> list[bytes]:
        """The lines of what is still under way."""
        return _lines(self._transcript.finish())

    def header(self, **fields: Any) -> Header:
        """The header as of now; `fields` are further ones, a `note` goes before what is said here.

        It says how many calls are missing before the first op, and what could not be told.
        """
        said = [fields.pop("note", "")]
        if self._missed:
            said.append(f"{self._missed} calls came before it and left a tree that it lacks")
        if self._transcript.untold:
            counted = self._transcript.untold.most_common()
            said.append("not told: " + ", ".join(f"{count} x {what}" for what, count in counted))
        note = "; ".join(filter(None, said))
        return Header(
            treedrift="trace", version=FORMAT_VERSION, config=self._config, note=note, **fields
        )


def _lines(told: Iterable[AnyOp]) -> list[bytes]:
    return [_ENCODER.encode(op) + b"\n" for op in told]
