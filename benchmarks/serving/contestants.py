"""The cores that a run can have, by name.

`sglang-python` and `sglang-rust` are SGLang's own, `treedrift-python` and `treedrift-rust` ours in
their place, `shadow:FIRST,SECOND` the first with the second in its shadow, `record:CORE` one whose
calls are written down, `chosen` what SGLang's own variable says. Hides which backend and which
variables stand behind a name.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from treedrift.inside.variables import PREFIXES

OWN = {"sglang-python": "python", "sglang-rust": "rust"}
CHOSEN = "chosen"


@contextmanager
def entered(name: str) -> Iterator[str | None]:
    """The backend for a cache, or None, while the variables are set that its factory reads.

    A core keeps what it read, and the folder for traces goes at the end: run it inside.
    """
    kind, _, rest = name.partition(":")
    before = {key: text for key, text in os.environ.items() if key.startswith(PREFIXES)}
    with tempfile.TemporaryDirectory(prefix="treedrift-traces-") as folder:
        try:
            yield _backend(kind, rest, folder)
        finally:
            for key in [key for key in os.environ if key.startswith(PREFIXES)]:
                del os.environ[key]
            os.environ.update(before)


def _backend(kind: str, rest: str, folder: str) -> str | None:
    if kind == "shadow":
        first, _, second = rest.partition(",")
        os.environ["TREEDRIFT_SHADOW_FIRST"] = first
        os.environ["TREEDRIFT_SHADOW_SECOND"] = second
        os.environ.setdefault("TREEDRIFT_TRACE_DIR", folder)
        return "treedrift-shadow"
    if kind == "record":
        os.environ["TREEDRIFT_RECORD_CORE"] = rest
        os.environ.setdefault("TREEDRIFT_TRACE_DIR", folder)
        return "treedrift-record"
    return None if kind == CHOSEN else OWN.get(kind, kind)
