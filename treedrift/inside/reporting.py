"""What a shadow tells: one line in the log, counters, and a trace of the run where cores part.

Telling never fails: what can't be saved or counted is a sentence in the log. Hides files.
"""

from __future__ import annotations

import fcntl
import importlib
import logging
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from ..harness.compare import Divergence
from ..harness.lockstep import Pair
from ..harness.trace import Trace, write_trace

LOG = logging.getLogger("treedrift")

METRIC = "treedrift_shadow_divergences_total"
"""The counter of a server's metrics, by pair."""

CONTENT = frozenset(
    {
        "buffer_backup_pool_keys",
        "build_backup_spec",
        "build_external_linker_offload_transfers",
        "build_hicache_transfers",
        "build_load_back_spec",
        "build_storage_backup_spec",
        "get_hash_values",
        "get_last_hash_value",
        "get_prefix_hash_values",
        "prefetch_anchor_info",
        "snapshot_buffer_backup",
        "take_events",
        "validate_buffer_backup",
    }
)
"""Methods whose answers hold tokens, hashes of tokens or names that a client chose."""

PREFIX = "shadow-"
SHOWN = 200
"""How much of a value is shown, in characters."""


class Status(msgspec.Struct, kw_only=True):
    """What a shadow has seen of one core, which carries it as `treedrift_status`.

    `calls` counts what the cache called, `compared` what the second core was asked too. `soft`
    counts differences that leave both in the same state, each kind once. `traces` are the files
    that were saved. `is_on`: the second core still follows; `last` is what was told last.
    """

    pair: Pair
    is_on: bool = True
    calls: int = 0
    compared: int = 0
    divergences: int = 0
    soft: int = 0
    faults: int = 0
    traces: list[str] = []
    last: str = ""


class Reporter:
    """Tells what one shadow finds. A trace goes to `folder`, which holds `files` at most.

    `no_trace` says why no trace can be saved, where that is known before. `plain`: what is told may
    tell of the tokens that the server was given. `is_strict`: what is told is raised as well.
    """

    def __init__(
        self,
        pair: Pair,
        folder: Path | None = None,
        files: int = 8,
        no_trace: str = "",
        plain: bool = False,
    ) -> None:
        self.status = Status(pair=pair)
        self.no_trace = no_trace
        self.is_strict = False
        self._folder = folder
        self._files = files
        self._plain = plain
        if folder is None:
            self.no_trace = no_trace or "TREEDRIFT_TRACE_DIR names no folder"

    def divergence(self, found: Divergence, trace: Trace | None) -> None:
        """The two cores have parted: save the trace, count, and say so. The shadow is off."""
        self.status.is_on = False
        self.status.divergences += 1
        saved = self._saved(trace)
        first, second = found.pair
        self._tell(
            logging.WARNING,
            f"{first} and {second} part at {place_of(found)}: {self.values_of(found)}. {saved}. "
            f"{self._then()}",
        )
        _count(found.pair)

    def soft(self, found: Divergence) -> None:
        """The two cores differ in what leaves them in the same state: say so."""
        self.status.soft += 1
        first, second = found.pair
        self._tell(
            logging.WARNING,
            f"{first} and {second} differ at {place_of(found)}, and are in the same state: "
            f"{self.values_of(found)}",
        )

    def fault(self, error: BaseException) -> None:
        """The shadow itself has failed and is off."""
        self.status.is_on = False
        self.status.faults += 1
        self._tell(
            logging.ERROR,
            f"the shadow {self.status.pair[1]} failed and is off: {shown(error)}. {self._then()}",
            error,
        )

    def values_of(self, found: Divergence) -> str:
        """What the two sides show where they differ, shortened."""
        first, second = found.pair
        method = re.match(r"calls\[\d+\]\.(\w+)", found.where)
        if not self._plain and method is not None and method[1] in CONTENT:
            return "what they have is not shown, for it tells of tokens"
        return f"{first} has {shown(found.left)}, {second} {shown(found.right)}"

    def _then(self) -> str:
        if self.is_strict:
            return "It is raised"
        return f"The server goes on with {self.status.pair[0]} alone"

    def _tell(self, level: int, text: str, error: BaseException | None = None) -> None:
        self.status.last = text
        LOG.log(level, "treedrift shadow: %s", text, exc_info=error)

    # --- Files ----------------------------------------------------------------------------

    def _saved(self, trace: Trace | None) -> str:
        """Save a trace; a sentence without a stop that says where it is, or why nowhere."""
        if self._folder is None or trace is None:
            return f"No trace is saved: {self.no_trace or 'no history was kept'}"
        try:
            path = self._write(self._folder, trace)
        except Exception as error:
            return f"No trace is saved: {shown(error)}"
        if path is None:
            return f"No trace is saved: {self._folder} holds {self._files} already"
        self.status.traces.append(str(path))
        if trace.header.expect == "agrees":
            return f"The run up to there is {path}; no op says this call, so a replay agrees"
        return f"The trace of the run is {path}; `treedrift replay` and `treedrift shrink` take it"

    def _write(self, folder: Path, trace: Trace) -> Path | None:
        """Write a trace to a new file; None if the folder is full."""
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder):  # The processes of one server part at the same moment.
            # What somebody shrank there is no trace of ours.
            saved = [path for path in folder.glob(f"{PREFIX}*.jsonl") if ".min." not in path.name]
            if len(saved) >= self._files:
                return None
            path = next(path for path in self._names(folder) if not path.exists())
            write_trace(path, trace)
        # Nobody else needs to read what a server's users did.
        path.chmod(0o600)
        return path

    def _names(self, folder: Path) -> Iterator[Path]:
        """File names of this moment, process and pair."""
        pair = re.sub(r"[^\w.+-]", "-", "+".join(self.status.pair))
        stem = f"{PREFIX}{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{pair}"
        yield folder / f"{stem}.jsonl"
        for number in range(2, self._files + 2):
            yield folder / f"{stem}-{number}.jsonl"


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Nobody else writes to the folder meanwhile."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


# --- Words --------------------------------------------------------------------------------


def place_of(found: Divergence) -> str:
    """Which call of the run, and where in it."""
    return f"call {found.op_index} ({found.where})"


def shown(value: Any) -> str:
    """A value's text on one line, shortened."""
    text = f"{type(value).__name__}: {value}" if isinstance(value, BaseException) else repr(value)
    text = " ".join(text.split())
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


# --- Metrics ------------------------------------------------------------------------------


def _count(pair: Pair) -> None:
    try:
        counter = _counter()
        if counter is not None:
            counter.labels(",".join(pair)).inc()
    except Exception as error:
        LOG.warning("treedrift shadow: %s can't be counted: %s", METRIC, shown(error))


@cache
def _counter() -> Any:
    """The server's counter; None without its library.

    Made when it is first needed: a server says before where its processes meet.
    """
    try:
        client = importlib.import_module("prometheus_client")
    except ImportError:
        return None
    return client.Counter(METRIC, "Divergences that shadow cores have shown", ["pair"])
