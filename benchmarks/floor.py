"""The floor under core time: what comparing and copying the same bytes costs with nothing else.

One run of the log counts which bytes any core must touch: it compares the tokens that a lookup or
an insert finds in the tree, copies the tokens and slots that an insert adds, and copies the slots
of a path that is read back. The floor replays these moves with the C library's `memcmp` and
`memcpy`, through buffers too large for the caches, as the tokens of a full tree are.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, Literal, cast

from treedrift.backends.contract import CacheInitParams, TreeCore

Kind = Literal["compare", "copy"]
Move = tuple[Kind, int]
"""What is done with how many bytes."""

ITEM_BYTES = 8
"""Bytes of a token or a slot."""

_BUFFER_BYTES = 32 * 2**20


class CountingCore:
    """A proxy of a core that notes the moves its calls make necessary. Cast it to `TreeCore`."""

    def __init__(self, core: TreeCore, moves: list[Move]) -> None:
        object.__setattr__(self, "_core", core)
        object.__setattr__(self, "_moves", moves)

    _core: TreeCore
    _moves: list[Move]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)

    def __setattr__(self, name: str, new: Any) -> None:
        setattr(self._core, name, new)

    def match_prefix(self, params: Any) -> Any:
        result = self._core.match_prefix(params)
        self._note("compare", result.device_prefix_len)
        return result

    def begin_insert(self, params: Any) -> Any:
        step = self._core.begin_insert(params)
        if step.result is not None:
            known = step.result.prefix_len
            self._note("compare", known)
            new = len(params.key) - known
            self._note("copy", new)  # The tokens.
            self._note("copy", new)  # Their slots.
        return step

    def collect_full_device_indices(self, *arguments: Any) -> Any:
        path = self._core.collect_full_device_indices(*arguments)
        self._note("copy", path.numel())
        return path

    def _note(self, kind: Kind, items: int) -> None:
        if items > 0:
            self._moves.append((kind, items * ITEM_BYTES))


def counting(
    create: Callable[[CacheInitParams], TreeCore], moves: list[Move]
) -> Callable[[CacheInitParams], TreeCore]:
    """A factory of cores that add their moves to `moves`."""
    return lambda params: cast(TreeCore, CountingCore(create(params), moves))


class Floor:
    """Replays moves; its buffers are made once and hold equal bytes, so that compares run on."""

    def __init__(self) -> None:
        library = ctypes.CDLL(None)
        sizes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
        self._compare, self._copy = library.memcmp, library.memcpy
        self._compare.argtypes = self._copy.argtypes = sizes
        self._copy.restype = ctypes.c_void_p
        self._left = ctypes.create_string_buffer(b"\1" * _BUFFER_BYTES, _BUFFER_BYTES)
        self._right = ctypes.create_string_buffer(b"\1" * _BUFFER_BYTES, _BUFFER_BYTES)

    def nanoseconds(self, moves: list[Move]) -> int:
        """How long the moves take, one after the other through the buffers."""
        left, right = ctypes.addressof(self._left), ctypes.addressof(self._right)
        place = 0
        started = perf_counter_ns()
        for kind, size in moves:
            if place + size > _BUFFER_BYTES:
                place = 0
            act = self._compare if kind == "compare" else self._copy
            act(left + place, right + place, min(size, _BUFFER_BYTES))
            place += size
        return perf_counter_ns() - started
