"""A worker process: one core and its side, in the interpreter where the core lives.

It is run by path, `python -P .../treedrift/harness/worker.py NAME`, in environments that don't
have treedrift: it makes the package importable by hand and puts nothing on the import path.
Before `treedrift` is loaded it may use the standard library alone. Whatever a library prints goes
to standard error; the real standard streams carry frames. It dies with its owner.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

DEFAULT_HANDLERS = "treedrift.harness.side:make_handlers"
"""`module:function` or `file.py:function`; the function takes a core's name and gives handlers."""


def main(arguments: list[str]) -> int:
    """Serve until the owner closes the pipe; 1 if the worker can't start."""
    parser = argparse.ArgumentParser(prog="worker.py", description="host one core")
    parser.add_argument("core", help="name of a core, as in 'sglang-rust'")
    parser.add_argument("--handlers", default=DEFAULT_HANDLERS)
    parser.add_argument("--lifeline", type=int, help="descriptor that closes with the owner")
    options = parser.parse_args(arguments)
    requests, replies = take_standard_streams()
    # The owner decides about an interrupt that reaches the whole terminal.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if options.lifeline is not None:
        die_with_owner(options.lifeline)
    load_treedrift(Path(__file__).parent.parent)
    frames = importlib.import_module("treedrift.harness.frames")
    try:
        handlers = load_handlers(options.handlers)(options.core)
    except Exception as error:
        frames.refuse(error, replies)
        return 1
    frames.serve(handlers, requests, replies)
    return 0


def take_standard_streams() -> tuple[int, int]:
    """Private copies of standard input and output, which then lead to nothing and to the log."""
    requests, replies = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return requests, replies


def die_with_owner(lifeline: int) -> None:
    """Have the kernel end this process when the last writer of the pipe is gone.

    Nothing is ever written there, so the only event is its end. The signal's default is to end
    the process, which works even while native code holds the interpreter.
    """
    import fcntl

    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    flags = fcntl.fcntl(lifeline, fcntl.F_GETFL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, flags | os.O_ASYNC | os.O_NONBLOCK)
    try:
        owner_is_gone = os.read(lifeline, 1) == b""
    except BlockingIOError:
        owner_is_gone = False
    if owner_is_gone:
        sys.exit(1)


def load_treedrift(folder: Path) -> None:
    """Make `treedrift` importable from this folder without touching the import path."""
    if "treedrift" in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(
        "treedrift", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["treedrift"] = module
    spec.loader.exec_module(module)


def load_handlers(where: str) -> Callable[[str], Mapping[str, Callable[[bytes], bytes]]]:
    """The function that makes handlers, from `module:function` or `file.py:function`."""
    place, _, name = where.rpartition(":")
    if place.endswith(".py"):
        spec = importlib.util.spec_from_file_location("treedrift_worker_handlers", place)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(place)
    made: Any = getattr(module, name)
    found: Callable[[str], Mapping[str, Callable[[bytes], bytes]]] = made
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
