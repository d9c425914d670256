"""A transcript on disk: a group of trace files that is bounded in number and size.

Each file is a valid trace at every moment, also when the process is killed: a line is written
whole or not at all, and the header has a line of fixed length, so that it can be written anew when
there is more to say in its note. A new file starts with an empty tree and fresh pseudonyms.

Hides files and their names.
"""

from __future__ import annotations

import errno
import itertools
import os
import time
from collections import deque
from pathlib import Path
from typing import Any

import msgspec

from ..config import Config
from ..trace import Header
from .call import Call
from .part import NamingKind, Part
from .pseudonyms import Pseudonyms

HEADER_BYTES = 4096
"""Length of a header's line; what its note has no room for is cut off."""

_GROUPS = itertools.count()


class TraceFiles:
    """The files of one group, of which one is written to.

    Names are `STEM-START-PID-GROUP-NUMBER.jsonl`: when the group began (UTC), in which process,
    which of its groups it is, and which of the group's files. Methods raise `OSError`; the file in
    use then ends with the last line that was written whole, and nothing more is written.
    """

    def __init__(self, folder: Path, stem: str, files_max: int) -> None:
        self._folder = folder
        started = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        self._group = f"{stem}-{started}-{os.getpid()}-{next(_GROUPS)}"
        self._files_max = files_max
        self._number = 0
        self._paths = deque[Path]()
        self._handle: int | None = None
        self.size = 0

    def start(self, header: Header) -> None:
        """Begin the next file; the oldest of the group goes if there are too many."""
        self.close()
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{self._group}-{self._number:04}.jsonl"
        # Nobody else needs to read what a server's users did.
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._number += 1
        self._paths.append(path)
        self.size = 0
        try:
            self.write(_header_line(header))
        except OSError:
            self._paths.pop().unlink()  # An empty file is no trace.
            raise
        while len(self._paths) > self._files_max:
            self._paths.popleft().unlink(missing_ok=True)

    def write(self, data: bytes) -> None:
        """Append whole lines."""
        if self._handle is None or not data:
            return
        try:
            if os.write(self._handle, data) < len(data):
                # What there is of a line would make the file unreadable.
                os.ftruncate(self._handle, self.size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            self.close()
            raise
        self.size += len(data)

    def retitle(self, header: Header) -> None:
        """Write the header of the file in use anew."""
        if self._handle is not None:
            os.pwrite(self._handle, _header_line(header), 0)

    def close(self) -> None:
        """Write no more to the file in use."""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)


def _header_line(header: Header) -> bytes:
    data = msgspec.json.encode(header)
    while len(data) >= HEADER_BYTES and header.note:
        excess = len(data) - HEADER_BYTES + len("...") + 1
        cut = f"{header.note[: -excess - 3]}..."
        header = msgspec.structs.replace(header, note=cut if cut != header.note else "")
        data = msgspec.json.encode(header)
    if len(data) >= HEADER_BYTES:
        # Written anew it would run into the first op.
        raise OSError(errno.EMSGSIZE, "the header of the trace is too long")
    return data.ljust(HEADER_BYTES - 1) + b"\n"


class RotatingTraces:
    """The calls of one cache, written to `folder` as they come.

    A file is followed by another one at about `bytes_max`, or when its naming is full; of a group
    `files_max` are kept. `header` are further fields of every header. Methods raise `OSError`.
    """

    def __init__(
        self,
        folder: Path,
        config: Config,
        *,
        bytes_max: int = 64 * 2**20,
        files_max: int = 8,
        naming: NamingKind = Pseudonyms,
        stem: str = "record",
        **header: Any,
    ) -> None:
        self._header = header
        self._bytes_max = bytes_max
        self._files = TraceFiles(folder, stem, files_max)
        self._begin(Part(config, naming))

    def _begin(self, part: Part) -> None:
        self._part = part
        self._left_out = 0
        self._files.start(part.header(**self._header))
        self._files.write(b"".join(part.opening()))

    def add(self, call: Call) -> None:
        """A call has ended."""
        part = self._part
        if part.is_between and (part.is_full or self._files.size >= self._bytes_max):
            self._begin(part.after())
        self._files.write(b"".join(self._part.tell(call)))
        if self._part.left_out != self._left_out:
            self._left_out = self._part.left_out
            self._files.retitle(self._part.header(**self._header))

    def close(self) -> None:
        """Write what is still under way, and no more after it."""
        try:
            self._files.write(b"".join(self._part.finish()))
        finally:
            self._files.close()
