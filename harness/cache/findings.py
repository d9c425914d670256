"""What the cache reports when a core has misled it: findings it collects, errors it raises."""

from __future__ import annotations

import msgspec


class OracleFinding(msgspec.Struct, frozen=True):
    """A check on one side failed, but the side can go on. `oracle` names the check."""

    oracle: str
    message: str


class CacheError(AssertionError):
    """A core's answer broke a promise that the cache can't go on without (CTL-19, CTL-38)."""
