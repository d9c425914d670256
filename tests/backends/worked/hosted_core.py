"""What a worker runs so that a test can talk to a core that lives in another interpreter.

`make_handlers` answers `build` with the number of a fresh core, and `call` with the outcome of one
call: what it returned or raised, and its arguments, because a core may append to them. `assign`
sets an attribute.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from treedrift.backends.registry import local_backend


class Host:
    """The cores of one worker, by number."""

    def __init__(self, core_name: str) -> None:
        self._create = local_backend(core_name).create
        self._cores: list[Any] = []

    def build(self, payload: bytes) -> bytes:
        def create() -> int:
            self._cores.append(self._create(pickle.loads(payload)))
            return len(self._cores) - 1

        return outcome(create, ())

    def call(self, payload: bytes) -> bytes:
        number, method, arguments = pickle.loads(payload)
        found = getattr(self._cores[number], method)
        return outcome(found if callable(found) else lambda: found, arguments)

    def assign(self, payload: bytes) -> bytes:
        number, attribute, value = pickle.loads(payload)
        return outcome(lambda: setattr(self._cores[number], attribute, value), ())


def outcome(call: Callable[..., Any], arguments: tuple[Any, ...]) -> bytes:
    try:
        returned, raised = call(*arguments), None
    except Exception as error:
        returned, raised = None, error
    return pickle.dumps((returned, raised, arguments))


def make_handlers(core_name: str) -> dict[str, Callable[[bytes], bytes]]:
    host = Host(core_name)
    return {"build": host.build, "call": host.call, "assign": host.assign}
