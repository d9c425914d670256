"""Handlers that a worker under test serves: each one misbehaves in one way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable


def make_handlers(core_name: str) -> dict[str, Callable[[bytes], bytes]]:
    """Handlers by kind. The core named "refused" can't be made."""
    if core_name == "refused":
        raise ValueError("no such core here")
    if core_name == "dies at start":
        os._exit(9)
    held: list[bytearray] = []

    def hold(payload: bytes) -> bytes:
        held.append(bytearray(b"\1" * int(payload)))
        threading.Event().wait()
        return b""

    def make_noise(payload: bytes) -> bytes:
        print("noise from Python")
        subprocess.run(["echo", "noise from a child"], check=True)
        os.write(1, b"noise from native code\n")
        return payload

    def exhaust(payload: bytes) -> bytes:
        raise MemoryError("no room")

    def hang(payload: bytes) -> bytes:
        threading.Event().wait()
        return b""

    def end(payload: bytes) -> bytes:
        print("last words", file=sys.stderr, flush=True)
        os._exit(int(payload))

    def kill(payload: bytes) -> bytes:
        os.kill(os.getpid(), signal.SIGKILL)
        return b""

    return {
        "echo": lambda payload: payload,
        "name": lambda payload: core_name.encode(),
        "path": lambda payload: "\n".join(sys.path).encode(),
        "hash": lambda payload: str(hash("text")).encode(),
        "fail": lambda payload: str(1 // len(payload)).encode(),
        "noise": make_noise,
        "hold": hold,
        "exhaust": exhaust,
        "hang": hang,
        "end": end,
        "kill": kill,
    }
