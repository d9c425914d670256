"""The event stream of a run as JSON lines: written while it lasts, read by every report.

A line counts once its line break is there. A process that is killed can leave its last line
without one; reader and writer alike take that line for not written. Hides JSON and the file.
"""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import IO, Any

import msgspec

from ..harness.events import EVENTS_FILE, Event, Progress


class StreamError(Exception):
    """A stream that can't be read or is in use; the message names file, line and what to do."""


class StreamWriter:
    """Appends events to a run's stream, each at once on the disk's side of this process.

    Call it with an event. `Progress` is for those who watch and is left out. A stream that is
    there already goes on: that is how a run is resumed. While one is open no other can be.
    """

    def __init__(self, path: Path) -> None:
        """Open `path`, and its folder if need be. Raises `OSError`, and `StreamError` if in use."""
        path.parent.mkdir(parents=True, exist_ok=True)
        # One unbuffered write a line: a killed process loses no event that was told.
        self._file = path.open("ab", buffering=0)
        try:
            _reserve(self._file, path)
        except StreamError:
            self._file.close()
            raise
        _drop_cut_line(path)
        self._encode = msgspec.json.Encoder().encode

    def __call__(self, event: Event) -> None:
        """Write one event."""
        if not isinstance(event, Progress):
            self._file.write(self._encode(event) + b"\n")

    def close(self) -> None:
        """End the file; nothing can be written afterwards."""
        self._file.close()

    def __enter__(self) -> StreamWriter:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def check_idle(path: Path) -> None:
    """Raise `StreamError` if a run is writing to a stream that is there."""
    with path.open("rb") as file:
        _reserve(file, path)


def _reserve(file: IO[bytes], path: Path) -> None:
    """Keep other runs off a file until it is closed, in whatever way its process ends."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StreamError(
            f"{path}: another run is writing to it; wait until it ends, or give another --out"
        ) from None
    except OSError:
        pass  # A file system without locks: whoever uses one takes care.


def _drop_cut_line(path: Path) -> None:
    """What is appended must start a line of its own."""
    if path.exists():
        data = path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            with path.open("r+b") as file:
                file.truncate(whole)


def read_events(path: Path) -> list[Event]:
    """All events of a stream. Raises `StreamError` for a missing or damaged file."""
    try:
        data = path.read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        raise StreamError(f"{path}: can't be read: {reason}; name a run's {EVENTS_FILE}") from error
    decode = msgspec.json.Decoder[Event](Event).decode
    events: list[Event] = []
    # What follows the last line break is empty, or a line that was cut.
    for number, line in enumerate(data.split(b"\n")[:-1], 1):
        if not line.strip():
            continue
        try:
            events.append(decode(line))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            problem = str(error)[:1].lower() + str(error)[1:]
            raise StreamError(
                f"{path}:{number}: no event: {problem}; "
                f"take the file from the run again, or remove the line"
            ) from None
    return events
