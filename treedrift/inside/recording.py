"""The recorder: what a cache does on its core goes into trace files as it is done."""

from __future__ import annotations

import logging
import weakref
from pathlib import Path
from typing import Any

from ..harness.config import Config
from ..harness.transcript import Call, RotatingTraces
from .watched import WatchEndedError

LOG = logging.getLogger("treedrift")


class Recording:
    """A watcher that writes every call down.

    When the files can't be written any more it says so once in the log and ends. What was recorded
    is on disk after every call; an insert in flight follows when the recording is closed, which is
    when nobody has it any more, and when the process ends.
    """

    def __init__(self, folder: Path, config: Config, **settings: Any) -> None:
        """`settings` are those of `RotatingTraces`. Raises `OSError` if the first file can't be."""
        self._folder = folder
        self._traces = RotatingTraces(folder, config, **settings)
        self._closing = weakref.finalize(self, _close, self._traces, folder)

    def begins(self, call: Call) -> None:
        """A call is written down when it has ended."""

    def ends(self, call: Call) -> None:
        """Write a call down. Raises `WatchEndedError` when nothing can be written any more."""
        if not self._closing.alive:
            raise WatchEndedError("the recording has ended")
        try:
            self._traces.add(call)
        except OSError as error:
            self._closing.detach()
            _warn(self._folder, error)
            raise WatchEndedError("the recording can't be written") from error

    def close(self) -> None:
        """Write what is still under way, and no more after it."""
        self._closing()


def _close(traces: RotatingTraces, folder: Path) -> None:
    try:
        traces.close()
    except OSError as error:
        _warn(folder, error)


def _warn(folder: Path, error: OSError) -> None:
    reason = error.strerror or str(error)
    LOG.warning("the recording in %s ends here, the server goes on: %s", folder, reason)
