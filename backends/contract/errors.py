"""Errors that a core raises. Each one leaves the core as it was before the call.

The classes derive from the built-in errors of the released cores (BND-32), so that code
written for those catches ours too. Conversions at the boundary raise the built-in
`TypeError` and `OverflowError` (BND-22).
"""

from __future__ import annotations


class TreeCoreError(Exception):
    """Base of all errors that a core raises on purpose."""


class UnknownNodeError(TreeCoreError, KeyError):
    """A handle that is stale or was never issued (BND-31). Its only argument is the handle."""


class ContractError(TreeCoreError, AssertionError):
    """A call out of protocol: a lock not held, a walk not open, a foreign receipt."""


class InvalidArgumentError(TreeCoreError, ValueError):
    """A value that no tree accepts: a wrong dtype, length, device, policy or page size."""


class InsertProtocolError(TreeCoreError, RuntimeError):
    """A second insert while one is suspended (INS-1), or a resume without one (INS-3)."""


class AncestorError(TreeCoreError, RuntimeError):
    """A path whose end is not an ancestor of its start (LNK-8)."""


class UnsupportedError(TreeCoreError, NotImplementedError):
    """A component, tier or mode that this core does not have."""


class CorePoisonedError(TreeCoreError, RuntimeError):
    """A native panic, or any call after one: the core refuses to go on (BND-34)."""


class SanityCheckError(TreeCoreError, AssertionError):
    """`sanity_check` found violations; the first line counts them (CHK)."""
