"""Values that cross between a release of SGLang and the contract, in either direction.

One mechanism for both directions and for every type: a converter is made from the contract's
annotations and from the fields that both sides have. A field that the source has and the target
lacks is refused by name as soon as it leaves its default when it comes from the release; one that
the release lacks is dropped and noted as missing, unless a tree could not be what was asked for
without it. A field that only the target has gets the target's default.
"""

from __future__ import annotations

import types
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, NoReturn, Union, get_args, get_origin

import torch

from .. import contract
from ..contract import Frees, RadixKey, UnsupportedError
from .pairing import (
    GIVEN,
    INCOMPARABLE,
    INDISPENSABLE,
    LEFT_BEHIND,
    OF_THE_CACHE,
    PUBLISHED_APART,
    TOLD_OTHERWISE,
    Array,
    Converter,
    annotations_of,
    paired_types,
)
from .release import REQUIRED, Release, ReleaseMismatchError, fields_of


class _Structs(dict[Any, Converter]):
    """Converters of structs by the class of what is given; made when they are first needed."""

    def __init__(self, make: Callable[[Any], Converter]) -> None:
        self._make = make

    def __missing__(self, kind: Any) -> Converter:
        made = self[kind] = self._make(kind)
        return made


class _OpenMembers(dict[Any, Any]):
    """Members of one enumeration by those of the other; anything else as it is."""

    def __missing__(self, key: Any) -> Any:
        return key


class _Members(dict[Any, Any]):
    """Members of one enumeration by those of the other; a new member is named, not guessed."""

    def __missing__(self, key: object) -> Any:
        raise ReleaseMismatchError(f"the contract has no place for {key!r}")


class Crossing:
    """Converters from a release to the contract, or with `inward` from the contract to a release.

    With `owns`, what comes out shares no list, array or tensor with what went in. Without it,
    tensors, arrays and lists of plain values are handed through as they are. What is of no known
    type is passed on inwards, for the core to refuse, and refused by name outwards.
    """

    def __init__(self, release: Release, *, inward: bool, owns: bool) -> None:
        self._release = release
        self._inward = inward
        self._owns = owns
        self._sources: dict[Any, str] = {}
        for name, ours in paired_types().items():
            theirs = release.find(name)
            if theirs is not None:
                self._sources[ours if inward else theirs] = name
        self._structs = _Structs(self._make_struct)

    def of(self, kind: Any) -> Converter:
        """The converter of values that the contract annotates with `kind`."""
        return self.changing(kind) or _same

    def changing(self, kind: Any) -> Converter | None:
        """The converter of `kind`, or None where a value crosses as it is."""
        if kind == Frees:
            return self._frees()
        origin, inner = get_origin(kind), get_args(kind)
        if origin in (Union, types.UnionType):
            return self._either([one for one in inner if one is not types.NoneType])
        if origin is list:
            return self._list(inner[0])
        if origin is tuple:
            return self._tuple(inner)
        if origin is Sequence:
            return self._sequence(inner[0])
        if origin is dict:
            return self._map(*inner)
        if kind is torch.Tensor:
            return _cloned if self._owns else None
        if origin is Array:
            return _copied if self._owns else None
        if isinstance(kind, type) and issubclass(kind, Enum):
            return self._member(kind)
        return self.struct if kind in paired_types().values() else None

    def struct(self, value: Any) -> Any:
        """A struct of any type that both sides have; None as it is."""
        return self._structs[type(value)](value)

    # --- Containers -----------------------------------------------------------------------

    def _either(self, kinds: list[Any]) -> Converter | None:
        """Of several kinds all are structs, or all are containers of plain values."""
        convert = self.changing(kinds[0])
        if convert is None or convert == self.struct:
            return convert
        return lambda value: None if value is None else convert(value)

    def _list(self, kind: Any) -> Converter | None:
        convert = self.changing(kind)
        if convert is None:
            return list if self._owns else None
        return lambda values: list(map(convert, values))

    def _sequence(self, kind: Any) -> Converter | None:
        convert = self.changing(kind)
        if convert is None:
            return tuple if self._owns else None
        return lambda values: tuple(map(convert, values))

    def _tuple(self, kinds: tuple[Any, ...]) -> Converter | None:
        if kinds[-1] is Ellipsis:
            return self._sequence(kinds[0])
        converts = [self.of(kind) for kind in kinds]
        if all(convert is _same for convert in converts):
            return None
        return lambda values: tuple(
            convert(value) for convert, value in zip(converts, values, strict=True)
        )

    def _map(self, key_kind: Any, item_kind: Any) -> Converter | None:
        convert_key, convert = self.of(key_kind), self.of(item_kind)
        if convert_key is _same and convert is _same:
            return dict if self._owns else None
        if convert is _same:
            return lambda given: {convert_key(key): item for key, item in given.items()}
        return lambda given: {convert_key(key): convert(item) for key, item in given.items()}

    def _frees(self) -> Converter:
        """Freed tensors per component; one that freed nothing has no entry (BND-16)."""
        convert_key = self.of(contract.ComponentType)
        convert = self.of(list[torch.Tensor])
        return lambda given: {
            convert_key(key): convert(items) for key, items in given.items() if items
        }

    # --- Enumerations ---------------------------------------------------------------------

    def _member(self, ours: type[Enum]) -> Converter:
        theirs = self._release.find(ours.__name__)
        # Some releases have plain strings where others have an enumeration of strings.
        known = {} if theirs is None else {member.value: member for member in theirs}
        # A member equals its plain value, so that either finds the other side's member.
        plain = {member: known.get(member.value, member.value) for member in ours}
        if self._inward:
            return _OpenMembers(plain).__getitem__
        return _Members({value: member for member, value in plain.items()}).__getitem__

    # --- Structs --------------------------------------------------------------------------

    def _make_struct(self, source: Any) -> Converter:
        name = self._sources.get(source)
        if name is None:
            if self._inward and source in paired_types().values():
                raise UnsupportedError(f"the installed sglang has no {source.__name__}")
            if self._inward or source is types.NoneType:
                return _same
            raise ReleaseMismatchError(f"the contract has no place for a {source.__name__}")
        ours, theirs = getattr(contract, name), self._release.type(name)
        target = theirs if self._inward else ours
        have, want = fields_of(source), fields_of(target)
        read: dict[str, tuple[str, Converter | None]] = {
            field: (field, self._field(name, field, want[field])) for field in want if field in have
        }
        for field in set(want) - set(have):
            other, made = TOLD_OTHERWISE.get((name, field), ("", _same))
            if other in have:
                read[field] = (other, made)
        given, demanded = self._given(
            name, ours, {field for field in set(want) - set(read) if want[field] is REQUIRED}
        )
        if demanded:
            return _refusal(f"{name} of the installed sglang demands {demanded}")
        used = {field for field, _ in read.values()}
        refuse = self._refused(name, {field: have[field] for field in have if field not in used})
        return _struct_converter(target, read, given, refuse)

    def _field(self, name: str, field: str, default: Any) -> Converter | None:
        if self._owns and not self._inward and (name, field) in LEFT_BEHIND:
            return lambda value: default()
        ours = paired_types()[name]
        annotated = ours.__init__ if ours is RadixKey else ours
        convert = self.changing(annotations_of(annotated)[field])
        shape = None if default is REQUIRED else default()
        if not isinstance(shape, defaultdict):
            return convert
        # A map that makes what is missing on access stays one (BND-20).
        factory, converted = shape.default_factory, convert or _same
        return lambda value: defaultdict(factory, converted(value))

    def _given(self, name: str, ours: Any, required: set[str]) -> tuple[dict[str, Any], list[str]]:
        """Values for fields that the target demands and the source lacks, and those left over."""
        if self._inward:
            given = {key: item for key, item in GIVEN.get(name, {}).items() if key in required}
        else:
            given = {field: _stand_in(ours, field) for field in required}
        return given, sorted(required - set(given))

    def _refused(self, name: str, fields: dict[str, Any]) -> Converter | None:
        """What raises when a value's field, of those that the target lacks, leaves its default."""
        if self._inward:
            ignored = set(PUBLISHED_APART | INCOMPARABLE)
            if name not in INDISPENSABLE:
                return None
            error: type[Exception] = UnsupportedError
            told = f"the installed sglang has no {name}."
        else:
            ignored = set(OF_THE_CACHE.get(name, ()))
            error, told = ReleaseMismatchError, f"the contract has no place for {name}."
        watched = [(field, made) for field, made in fields.items() if field not in ignored]
        if not watched:
            return None

        def refuse(value: Any) -> None:
            for field, default in watched:
                if default is REQUIRED or differs(getattr(value, field), default()):
                    raise error(told + field)

        return refuse


def _struct_converter(
    target: Any,
    read: Mapping[str, tuple[str, Converter | None]],
    given: Mapping[str, Any],
    refuse: Converter | None,
) -> Converter:
    """Makes the target of the source's fields, some of them converted, and of what is given."""
    names: dict[str, Any] = {"target": target, "refuse": refuse}
    parts = []
    for field, (source, made) in read.items():
        names[f"made_{field}"] = made
        parts.append(f"{field}=" + (f"made_{field}(value.{source})" if made else f"value.{source}"))
    for field, value in given.items():
        names[f"given_{field}"] = value
        parts.append(f"{field}=given_{field}")
    check = "" if refuse is None else "    refuse(value)\n"
    return written(f"def convert(value):\n{check}    return target({', '.join(parts)})", names)


def written(source: str, names: Mapping[str, Any]) -> Callable[..., Any]:
    """The one function that `source` defines over `names`.

    Converters run several times in each call of a server: written out, they look up no names of
    fields and build no intermediate lists, which makes them two to three times as fast.
    """
    found: dict[str, Any] = {}
    exec(source, dict(names), found)
    (function,) = found.values()
    made: Callable[..., Any] = function
    return made


def _refusal(message: str) -> Converter:
    def refuse(value: Any) -> NoReturn:
        raise ReleaseMismatchError(message)

    return refuse


def _stand_in(ours: Any, name: str) -> Any:
    """What a field that the release lacks holds where the contract has no default: nothing."""
    kind = annotations_of(ours)[name]
    return kind() if kind in (bool, int, str) else None


def _same(value: Any) -> Any:
    return value


def _copied(value: Any) -> Any:
    return value[:]


def _cloned(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def differs(value: Any, default: Any) -> bool:
    """Whether a value is not the default; a tensor never is one."""
    if value is default:
        return False
    return isinstance(value, torch.Tensor) or bool(value != default)
