"""The file with which an interrupted search goes on: what every draft showed that was tried.

The search is deterministic. With the outcomes at hand it runs through to where it was without a
single trial, and ends with the same trace as if it had never stopped.
"""

from __future__ import annotations

import os
from pathlib import Path
from time import monotonic

import msgspec

from ..trace import TraceError, parse_trace
from .trial import Memo

SAVE_SECONDS = 1.0
"""Seconds between two savings."""


class Saved(msgspec.Struct):
    """What the file holds. `input` names trace, pair and signature; `best` is a trace as text."""

    input: str
    signature: str
    best: str
    trials: int
    memo: Memo


class Checkpoint:
    """A checkpoint file of one input; without a path it keeps nothing."""

    def __init__(self, path: Path | None, input_digest: str, signature: str) -> None:
        self._path = path
        self._input = input_digest
        self._signature = signature
        self._saved_at = monotonic()

    def load(self) -> tuple[Memo, str]:
        """Outcomes of an earlier search of the same input, and a sentence on what was found."""
        if self._path is None or not self._path.exists():
            return Memo(), ""
        try:
            saved = msgspec.json.decode(self._path.read_bytes(), type=Saved)
            parse_trace(saved.best.encode(), str(self._path))
        except (OSError, msgspec.MsgspecError, TraceError) as error:
            return Memo(), f"{self._path} can't be read and is started anew: {error}"
        if saved.input != self._input or saved.signature != self._signature:
            return (
                Memo(),
                f"{self._path} belongs to another trace, pair, kind or code and is started anew",
            )
        return saved.memo, f"{self._path}: going on after {saved.trials} trials"

    def is_due(self) -> bool:
        """Whether it is time to save again."""
        return self._path is not None and monotonic() - self._saved_at >= SAVE_SECONDS

    def save(self, best: bytes, trials: int, memo: Memo) -> None:
        """Write the file in one step. Raises `TraceError` where it can't be written."""
        if self._path is None:
            return
        saved = Saved(self._input, self._signature, best.decode(), trials, memo)
        draft = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            draft.write_bytes(msgspec.json.encode(saved))
            os.replace(draft, self._path)
        except OSError as error:
            reason = error.strerror or str(error)
            raise TraceError(
                str(self._path), None, None, f"can't be written: {reason}", "check the folder"
            ) from error
        self._saved_at = monotonic()
