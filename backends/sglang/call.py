"""One call into a released core: timed, and its errors turned into the contract's.

Hides how the two released cores say that something is wrong (BND-32, BND-33).
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from time import perf_counter_ns
from typing import Any

from ..contract import (
    AncestorError,
    ContractError,
    CorePoisonedError,
    InsertProtocolError,
    InvalidArgumentError,
    SanityCheckError,
    TreeCore,
    TreeCoreError,
    UnknownNodeError,
    UnsupportedError,
)

PANIC = "Rust TreeCore panicked"
"""How the message of a native panic starts (BND-33)."""

_INSERT_STEPS = {"begin_insert", "resume_insert", "end_insert"}


def translated(error: BaseException, method: str, component_type: Any) -> BaseException:
    """The contract's error for what a released core raised in `method`; else the same error.

    `component_type` is the release's enumeration: the Python core raises `KeyError(component)`
    for a component that it lacks (D2), which is no unknown node.
    """
    message = str(error)
    if isinstance(error, TreeCoreError):
        return error
    if type(error).__name__ == "PanicException":
        # Older releases let the native panic out as it is, which no `except Exception` catches.
        return CorePoisonedError(message)
    if isinstance(error, KeyError):
        if error.args and isinstance(error.args[0], component_type):
            return ContractError(f"{method}: this tree has no component {error.args[0]!r}")
        return UnknownNodeError(*error.args)
    if isinstance(error, AssertionError):
        kind = SanityCheckError if method == "sanity_check" else ContractError
        return kind(message)
    if isinstance(error, NotImplementedError):
        return UnsupportedError(message)
    if isinstance(error, RuntimeError):
        return _translated_runtime_error(error, method)
    if isinstance(error, IndexError) or (
        isinstance(error, ValueError) and not isinstance(error, UnicodeError)
    ):
        return InvalidArgumentError(message)
    if isinstance(error, AttributeError):
        # The Python core walks off its own structures when a call breaks the protocol (D2).
        return ContractError(f"{method}: {message}")
    return error


def _translated_runtime_error(error: RuntimeError, method: str) -> Exception:
    message = str(error)
    if message.startswith(PANIC):
        return CorePoisonedError(message)
    # One that was caused by something else, such as a library that can't be loaded, is no protocol.
    if error.__cause__ is None and method in _INSERT_STEPS:
        return InsertProtocolError(message)
    if method == "mark_external_cache_stored_path":
        return AncestorError(message)
    return error


class ReleasedCall:
    """Calls methods of one released core by name.

    `core_ns` accumulates the time spent inside the released core, conversions apart.
    """

    def __init__(
        self,
        core: Any,
        component_type: Any,
        methods_lacking: Set[str],
        parameters_lacking: Mapping[str, Set[str]],
    ) -> None:
        self.core_ns = 0
        self._core = core
        self._component_type = component_type
        self._methods_lacking = methods_lacking
        self._parameters_lacking = parameters_lacking

    def lacks(self, method: str, parameter: str | None = None) -> bool:
        """Whether the release has no such method, or no such parameter of it."""
        if parameter is None:
            return method in self._methods_lacking
        return parameter in self._parameters_lacking.get(method, ())

    def __call__(self, method: str, *args: Any, **optional: Any) -> Any:
        """Call `method`; `optional` holds only arguments that differ from their defaults.

        Raises the contract's errors; `UnsupportedError` if the release lacks the method or one
        of the optional arguments.
        """
        if optional:
            lacking = sorted(name for name in optional if self.lacks(method, name))
            if lacking:
                raise UnsupportedError(f"{method} of the installed sglang has no {lacking}")
        if method in self._methods_lacking:
            raise UnsupportedError(f"the installed sglang has no {method}")
        bound = getattr(self._core, method)
        start = perf_counter_ns()
        try:
            return bound(*args, **optional)
        except BaseException as error:
            known = translated(error, method, self._component_type)
            if known is error:
                raise
            raise known from error
        finally:
            self.core_ns += perf_counter_ns() - start

    def get(self, attribute: str) -> Any:
        """An attribute of the core. A class's default stands in for one that it lacks."""
        start = perf_counter_ns()
        try:
            if hasattr(TreeCore, attribute) and not hasattr(type(self._core), attribute):
                return getattr(self._core, attribute, getattr(TreeCore, attribute))
            return getattr(self._core, attribute)
        except BaseException as error:
            known = translated(error, attribute, self._component_type)
            if known is error:
                raise
            raise known from error
        finally:
            self.core_ns += perf_counter_ns() - start

    def set(self, attribute: str, value: Any) -> None:
        """Assign an attribute of the core."""
        start = perf_counter_ns()
        try:
            setattr(self._core, attribute, value)
        except BaseException as error:
            known = translated(error, attribute, self._component_type)
            if known is error:
                raise
            raise known from error
        finally:
            self.core_ns += perf_counter_ns() - start
