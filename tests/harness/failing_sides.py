"""Sides in a worker that fail in one way each when they come to an op of the kind `reset`.

The core's name says how: `exits`, `killed`, `hangs`, `hungry`, or `dies at open`.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

from treedrift.harness.side import make_handlers as make_sound_handlers

Handler = Callable[[bytes], bytes]


def make_handlers(core_name: str) -> dict[str, Handler]:
    """The handlers of a Python core's side, spoilt as the name says."""
    handlers = make_sound_handlers("python")
    run, open_side = handlers["run"], handlers["open"]
    failure = FAILURES.get(core_name)

    def failing_run(payload: bytes) -> bytes:
        if failure is not None and b'"reset"' in payload:
            failure()
        return run(payload)

    def failing_open(payload: bytes) -> bytes:
        if core_name == "dies at open":
            _exit()
        return open_side(payload)

    return {**handlers, "run": failing_run, "open": failing_open}


def _exit() -> None:
    os._exit(7)


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _hang() -> None:
    threading.Event().wait()


def _eat() -> None:
    held = []
    while True:
        held.append(b"\1" * (16 * 2**20))


FAILURES: dict[str, Callable[[], None]] = {
    "exits": _exit,
    "killed": _kill,
    "hangs": _hang,
    "hungry": _eat,
}
