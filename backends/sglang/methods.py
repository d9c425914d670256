"""How every method of a core crosses between the installed release and the contract.

Parameters are matched by name: the interface of the release says where each stands, the
contract's annotations say what each is. Everything is looked up once per process, and nothing of
it during a call. Hides where the signatures of the two sides part.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from ..contract import BUFFERS, CacheInitParams, TreeCore
from .call import translated
from .crossing import Crossing, differs
from .pairing import COPIED_APART, Converter, annotations_of, note_lacking
from .release import REQUIRED, Release, ReleaseMismatchError

INTERFACE = "UnifiedTreeCoreInterface"
"""What SGLang calls the interface of its cores."""


@dataclass(frozen=True)
class Signature:
    """Where the parameters of one method stand, and what they are by default.

    `theirs` are the release's parameters in order with their defaults; `ours` those of the
    contract; a parameter that only one side has is in one of the two. Defaults are the contract's
    values in `ours`, the release's in `theirs`, `REQUIRED` for none.
    """

    name: str
    theirs: Mapping[str, Any]
    ours: Mapping[str, Any]

    def named(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Given arguments by the release's names.

        Raises `TypeError` for more than the method takes, and `ReleaseMismatchError` for one that
        the contract has no place for and that is not its default.
        """
        if len(args) > len(self.theirs):
            raise TypeError(f"{self.name} takes {len(self.theirs)} arguments, got {len(args)}")
        given = {**dict(zip(self.theirs, args, strict=False)), **kwargs}
        for name in [name for name in given if name not in self.ours]:
            value, default = given.pop(name), self.theirs.get(name, REQUIRED)
            if default is REQUIRED or differs(value, default):
                raise ReleaseMismatchError(f"the contract has no place for {self.name}({name}=)")
        return given

    @property
    def unserved(self) -> list[str]:
        """Parameters that a call of the contract needs and the release never gives."""
        return [
            name
            for name, default in self.ours.items()
            if default is REQUIRED and name not in self.theirs and name not in BUFFERS
        ]

    @property
    def is_alike(self) -> bool:
        """Whether the release's arguments can be passed on place by place."""
        return list(self.theirs) == list(self.ours) and not BUFFERS.intersection(self.ours)


class Methods:
    """How every method of the contract crosses between one release and the contract, both ways.

    `names` are the contract's methods that the release's interface has too. What comes out of the
    release is a copy, which shares nothing with the core or its caller; what goes in is handed
    through where both sides have the same type.
    """

    names: tuple[str, ...]

    def __init__(self, release: Release) -> None:
        note_lacking(release)
        self.release = release
        self.interface = release.type(INTERFACE)
        self._copied = Crossing(release, inward=False, owns=True)
        self._shared = Crossing(release, inward=False, owns=False)
        self.inward = Crossing(release, inward=True, owns=False)
        self._component_type = release.type("ComponentType")
        self.signatures = _signatures(self.interface)
        self.names = tuple(self.signatures)
        # The one property is asked for like a method.
        asked = [*self.names, "empty_match_result"]
        hints = {name: annotations_of(_function(name)) for name in asked}
        self._arguments = {
            name: {key: self._copied.of(kind) for key, kind in found.items() if key != "return"}
            for name, found in hints.items()
        }
        for (name, key), convert in COPIED_APART.items():
            if name in self._arguments:
                self._arguments[name][key] = convert
        self.arguments_shared: dict[str, dict[str, Converter | None]] = {
            name: {key: self._shared.changing(kind) for key, kind in found.items()}
            for name, found in hints.items()
        }
        self._answers = {name: self._copied.of(found["return"]) for name, found in hints.items()}
        self.answers_in: dict[str, Converter | None] = {
            name: self.inward.changing(found["return"]) for name, found in hints.items()
        }

    # --- Out of the release, as copies ----------------------------------------------------

    def arguments_out(
        self, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Arguments by the contract's parameter names; defaults and buffers are left out.

        Raises `ReleaseMismatchError` for what the contract has no place for, by name.
        """
        if method not in self.signatures:
            return {}  # A property takes none.
        signature, converters = self.signatures[method], self._arguments[method]
        found = {}
        for name, value in signature.named(args, kwargs).items():
            if name in BUFFERS:
                continue
            converted, default = converters[name](value), signature.ours[name]
            if default is REQUIRED or differs(converted, default):
                found[name] = converted
        return found

    def answer_out(self, method: str, answer: Any) -> Any:
        """What a method, or `empty_match_result`, answered; nothing is drained."""
        return self._answers[method](answer)

    def filled_out(
        self, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> dict[str, Any]:
        """What the caller's buffers hold, by the contract's parameter names."""
        given = self.signatures[method].named(args, kwargs)
        converters = self._arguments[method]
        return {name: converters[name](value) for name, value in given.items() if name in BUFFERS}

    def error_out(self, method: str, error: BaseException) -> BaseException:
        """The contract's error for what a released core raised; else the same error."""
        return translated(error, method, self._component_type)

    def params_out(self, given: Any) -> CacheInitParams:
        """What SGLang builds a core with, as the contract has it; pools are the caller's own.

        Raises `ReleaseMismatchError` for what the contract has no place for, by name.
        """
        params: CacheInitParams = self._shared.struct(given)
        return params

    # --- Into the release -----------------------------------------------------------------

    def answer_in(self, method: str, answer: Any) -> Any:
        """What a core of the contract answered, in the release's types."""
        convert = self.answers_in[method]
        return answer if convert is None else convert(answer)

    def arguments_for_core(
        self, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Arguments of the release for a core of the contract, by name; buffers are left out.

        Values that both sides have in the same type are the caller's own.
        """
        converters = self.arguments_shared[method]
        found = {}
        for name, value in self.signatures[method].named(args, kwargs).items():
            if name not in BUFFERS:
                convert = converters[name]
                found[name] = value if convert is None else convert(value)
        return found


@cache
def methods_of_release() -> Methods:
    """The methods of the installed SGLang. Raises `ReleaseMismatchError`."""
    return Methods(Release())


def _signatures(interface: Any) -> dict[str, Signature]:
    found = {}
    for name, item in vars(TreeCore).items():
        theirs = getattr(interface, name, None)
        if not name.startswith("_") and inspect.isfunction(item) and theirs is not None:
            found[name] = Signature(name, _parameters(theirs), _parameters(item))
    return found


def _parameters(function: Any) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters
    return {
        name: REQUIRED if parameter.default is parameter.empty else parameter.default
        for name, parameter in parameters.items()
        if name != "self"
    }


def _function(name: str) -> Any:
    item = vars(TreeCore)[name]
    return item.fget if isinstance(item, property) else item
