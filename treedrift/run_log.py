"""One run while it lasts: its folder, its stream, and where it stands.

A run folder holds `events.jsonl`, the traces in `findings/` and the reports. An earlier run that
lies there is put aside, never overwritten.
"""

from __future__ import annotations

from pathlib import Path

from .harness.events import EVENTS_FILE, Checkpoint, Event, Finished, Progress, Sample
from .reports.stream import StreamWriter, check_idle, read_events
from .standing import Standing

FINDINGS = "findings"
"""Folder of a run's traces, inside the run's folder."""

SAMPLE_SECONDS = 5.0
"""Seconds between two samples of the tally."""


class RunLog:
    """Takes events, writes them down and keeps them.

    Without a folder nothing is written. Use it as a context manager, or close it.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.events: list[Event] = []
        self.standing = Standing()
        self._writer: StreamWriter | None = None
        self._next_sample = 0.0

    @classmethod
    def fresh(cls, folder: Path) -> RunLog:
        """A new run in a folder; an earlier one there moves to `FOLDER.1`, `FOLDER.2`, ...

        Raises `StreamError` if that one still lasts.
        """
        if (folder / EVENTS_FILE).exists():
            check_idle(folder / EVENTS_FILE)
            number = 1
            while (aside := folder.with_name(f"{folder.name}.{number}")).exists():
                number += 1
            folder.rename(aside)
        log = cls(folder)
        log._writer = StreamWriter(folder / EVENTS_FILE)
        return log

    @classmethod
    def resumed(cls, folder: Path) -> RunLog:
        """The run of a folder, to go on with. Raises `StreamError` if it lasts or there is none."""
        log = cls(folder)
        log.events = read_events(folder / EVENTS_FILE)
        log.standing = Standing.of(log.events)
        log._next_sample = log.standing.seconds()
        log._writer = StreamWriter(folder / EVENTS_FILE)
        return log

    @property
    def findings(self) -> Path | None:
        """Where traces go."""
        return None if self.folder is None else self.folder / FINDINGS

    def tell(self, event: Event) -> None:
        """Take one event; a checkpoint is followed by a sample now and then."""
        if isinstance(event, Progress):
            return
        self.events.append(event)
        self.standing.take(event)
        if self._writer is not None:
            self._writer(event)
        if isinstance(event, Checkpoint) and self.standing.seconds() >= self._next_sample:
            self._next_sample = self.standing.seconds() + SAMPLE_SECONDS
            tally = self.standing.tally()
            self.tell(Sample(seconds=self.standing.seconds(), tally=tally))

    def finish(self, interrupted: bool) -> None:
        """Tell the last event."""
        seconds, tally = self.standing.seconds(), self.standing.tally()
        self.tell(Finished(seconds=seconds, interrupted=interrupted, tally=tally))

    def close(self) -> None:
        """End the stream's file."""
        if self._writer is not None:
            self._writer.close()

    def __enter__(self) -> RunLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
