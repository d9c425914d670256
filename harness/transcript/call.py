"""One call of a cache on its core, as whoever listens between the two is told of it."""

from __future__ import annotations

from typing import Any

import msgspec


class Call(msgspec.Struct):
    """One outermost call of a cache on its core, in the contract's types.

    Nothing in it is shared with the core or the cache. `method` is a method of the contract,
    `kv_events.record_all_cleared`, or a setting with ` =` for its assignment, as in
    `is_write_back =`. `arguments` go by the contract's parameter names, defaults and the buffers
    that a call fills left out; those of an assignment are `{"value": new}`. `result` is what the
    core answered, before anybody drained it; `filled` what the call put into the caller's buffers;
    `error` what it raised instead, in the contract's terms where it has one.
    """

    method: str
    arguments: dict[str, Any] = {}
    result: Any = None
    filled: dict[str, Any] = {}
    error: BaseException | None = None
