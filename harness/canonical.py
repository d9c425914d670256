"""Turns what a core takes and gives into plain data that two sides can compare.

Three things differ between sides without meaning anything, and are renamed here: handles, lock
receipts' inner ids, and the order of per-component mappings. Handles are numbered in the order
in which they first appear on their side, so equal behaviour gives equal numbers. Long sequences
are kept as length and digest: the comparison stays cheap on prompts of many thousand tokens.

A struct becomes its name and its values in field order.
"""

from __future__ import annotations

import ctypes
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from functools import lru_cache
from operator import attrgetter
from typing import Any

import msgspec
import torch

from ..backends.contract import NodeId, RadixKey

INLINE_MAX = 64
"""Longest sequence that is kept element by element."""

HANDLE_FIELDS = frozenset(
    {
        "ack_id",
        "anchor_node_id",
        "best_match_node",
        "from_node_id",
        "inserted_host_node",
        "last_device_node",
        "last_host_node",
        "last_visited_node_id",
        "mamba_backup_node_id",
        "new_child_node_id",
        "new_node_id",
        "node_id",
        "old_node_id",
        "parent_id",
        "parent_node_id",
        "swa_backup_node_id",
        "tail_node_id",
        "until_node_id",
    }
)
HANDLE_LIST_FIELDS = frozenset({"end_node_ids", "node_ids", "nodes_to_load"})
RECEIPT_FIELDS = frozenset({"component_lock_uuids", "component_host_lock_uuids"})

Plain = Any
"""None, bool, int, str, or lists of these: what msgpack can hold."""

Encoder = Callable[["Names", Any], Plain]


class UnknownNameError(LookupError):
    """A handle or receipt without a number, so that another side can't be told of it."""


class Names:
    """The handles and receipt ids of one side, numbered by first appearance.

    `told` are the handles that ops were told, in order: what references can name. A look at the
    whole tree numbers handles too, but tells none, so that a trace means the same however often
    its sides are looked at.
    """

    def __init__(self) -> None:
        self._handles: dict[NodeId, int] = {}
        self._receipts: dict[int, int] = {}
        self._handle_of: dict[int, NodeId] = {}
        self._receipt_of: dict[int, int] = {}
        self._handle_count = 0
        self._receipt_count = 0
        self._has_forgotten_handles = self._has_forgotten_receipts = False
        self.told: dict[NodeId, None] = {}
        self.is_looking = False

    def handle(self, handle: Any) -> Plain:
        """The number of a handle; a new handle gets the next one."""
        if handle is None:
            return None
        number = self._handles.get(handle)
        if number is None:
            number = self._handles[handle] = self._handle_count
            self._handle_of[number] = handle
            self._handle_count += 1
        if not self.is_looking and handle not in self.told:
            self.told[handle] = None
        return number

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Calls in here tell ops of no handle."""
        self.is_looking = True
        try:
            yield
        finally:
            self.is_looking = False

    def is_new(self, handle: NodeId) -> bool:
        """Whether no op has been told of a handle yet."""
        return handle not in self.told

    def asked(self, handle: Any) -> Plain:
        """The number of a handle that a caller passed in, which may never have been issued."""
        try:
            number = self._handles.get(handle)
        except TypeError:
            number = None
        return ["unknown", repr(handle)] if number is None and handle is not None else number

    def receipt(self, uuid: int | None) -> Plain:
        """The number of a lock boundary id."""
        if uuid is None:
            return None
        number = self._receipts.get(uuid)
        if number is None:
            number = self._receipts[uuid] = self._receipt_count
            self._receipt_of[number] = uuid
            self._receipt_count += 1
        return number

    def handle_in(self, other: Names, handle: Any) -> Any:
        """The handle of another side that has the same number; one without a number as it is.

        So is what only equals a handle, such as True: a core tells such things apart. Raises
        `UnknownNameError` where the number may have been given up.
        """
        number = self._handles.get(handle) if type(handle) is int else None
        if number is not None:
            return other._handle_of.get(number, handle)
        if self._has_forgotten_handles and type(handle) is int:
            raise UnknownNameError(f"no call told of the handle {handle}, or it was given up")
        return handle

    def receipt_in(self, other: Names, uuid: int | None) -> int | None:
        """The lock boundary id of another side that has the same number, as `handle_in`."""
        number = None if uuid is None else self._receipts.get(uuid)
        if number is not None:
            return other._receipt_of.get(number, uuid)
        if self._has_forgotten_receipts and uuid is not None:
            raise UnknownNameError(f"no call told of the receipt {uuid}, or it was given up")
        return uuid

    def handles(self) -> dict[int, NodeId]:
        """All handles that have a number, by it; for reading alone."""
        return self._handle_of

    def receipts(self) -> dict[int, int]:
        """All lock boundary ids that have a number, by it; for reading alone."""
        return self._receipt_of

    def forget_handles(self, numbers: Iterable[int]) -> None:
        """Give up these numbers for ever; should their handles come again, they get new ones."""
        for number in numbers:
            del self._handles[self._handle_of.pop(number)]
            self._has_forgotten_handles = True

    def forget_receipts(self, numbers: Iterable[int]) -> None:
        """Give up these numbers of receipts for ever, as `forget_handles`."""
        for number in numbers:
            del self._receipts[self._receipt_of.pop(number)]
            self._has_forgotten_receipts = True


def _make_weights(count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(20260101)
    return torch.randint(-(2**62), 2**62, (count,), generator=generator, dtype=torch.int64)


_all_weights = _make_weights(1 << 14)


@lru_cache(maxsize=1024)
def _weights(count: int) -> torch.Tensor:
    """The first `count` weights; a longer draw begins with the shorter one, so they stay."""
    global _all_weights
    if count > _all_weights.numel():
        _all_weights = _make_weights(2 * count)
    return _all_weights[:count]


def digest(values: torch.Tensor) -> int:
    """An order-sensitive 64-bit digest of a 1-D int64 CPU tensor, a dot product with weights."""
    return int(torch.dot(values, _weights(values.numel())).item())


def tensor(values: torch.Tensor) -> Plain:
    """Elements of a short index tensor, length and digest of a long one; dtype if not int64."""
    count = values.numel()
    if values.dtype != torch.int64 or values.dim() != 1:
        return ["tensor", str(values.dtype), list(values.shape), values.flatten().tolist()]
    if count <= INLINE_MAX:
        return values.tolist()
    return ["long", count, digest(values if values.is_cpu else values.cpu())]


def sequence(names: Names, values: list[Any] | tuple[Any, ...]) -> Plain:
    """Elements of a list; length and checksum when it is a long one."""
    if not values:
        return []
    plain = [item if type(item) in ATOMS else value(names, item) for item in values]
    if len(plain) <= INLINE_MAX:
        return plain
    return ["long", len(plain), zlib.crc32(pack(plain))]


ATOMS = frozenset({type(None), bool, int, str, float})
"""Types that msgpack holds as they are, so they need no encoder."""

_PACKER = msgspec.msgpack.Encoder()


def pack(plain: Any) -> bytes:
    """Plain data, or a struct of it, in msgpack. Integers beyond 64 bits are written as text."""
    try:
        return _PACKER.encode(plain)
    except OverflowError:
        return _PACKER.encode(_spell_out(msgspec.to_builtins(plain)))


def _spell_out(plain: Any) -> Any:
    if isinstance(plain, list):
        return [_spell_out(item) for item in plain]
    if isinstance(plain, dict):
        return {key: _spell_out(item) for key, item in plain.items()}
    is_wide = type(plain) is int and not -(2**63) <= plain < 2**64
    return str(plain) if is_wide else plain


def _mapping(names: Names, values: dict[Any, Any]) -> Plain:
    pairs: Iterable[tuple[Any, Any]] = values.items()
    if len(values) > 1:
        pairs = sorted(pairs, key=_by_key)
    return [[value(names, key), value(names, item)] for key, item in pairs]


def _by_key(pair: tuple[Any, Any]) -> tuple[str, Any]:
    return type(pair[0]).__name__, pair[0]


def _key(names: Names, key: RadixKey) -> Plain:
    raw = key.raw_token_ids()
    tokens = list(raw) if len(raw) <= INLINE_MAX else ["long", len(raw), zlib.crc32(_bytes(raw))]
    return ["key", key.extra_key, key.cache_salt, key.is_bigram, tokens]


def _bytes(tokens: array[int]) -> Any:
    address, count = tokens.buffer_info()
    return (ctypes.c_char * (count * tokens.itemsize)).from_address(address)


_ENCODERS: dict[type, Encoder] = {
    torch.Tensor: lambda names, item: tensor(item),
    list: sequence,
    tuple: sequence,
    dict: _mapping,
    RadixKey: _key,
    array: lambda names, item: sequence(names, item.tolist()),
}


def value(names: Names, item: Any) -> Plain:
    """Any value of the contract as plain data."""
    kind = type(item)
    if kind in ATOMS:
        return item
    encoder = _ENCODERS.get(kind)
    if encoder is None:
        encoder = _ENCODERS[kind] = _encoder_of(kind)
    return encoder(names, item)


def _encoder_of(kind: type) -> Encoder:
    if issubclass(kind, msgspec.Struct):
        return _struct_encoder(kind)
    if issubclass(kind, int):
        return lambda names, item: int(item)
    if issubclass(kind, Enum):
        return lambda names, item: item.value
    return lambda names, item: repr(item)


def field_encoder(name: str) -> Encoder:
    """How a field or parameter of this name is encoded."""
    if name in HANDLE_FIELDS:
        return Names.handle
    if name in HANDLE_LIST_FIELDS:
        return lambda names, item: None if item is None else [names.handle(one) for one in item]
    if name in RECEIPT_FIELDS:
        return _receipts
    return value


def _receipts(names: Names, item: Any) -> Plain:
    if item == {}:  # As nearly always, and sorting nothing takes a while too.
        return []
    # Numbered in component order: that of the mapping is arbitrary in Rust cores (BND-41).
    return [[int(kind), names.receipt(item[kind])] for kind in sorted(item)]


def _struct_encoder(kind: type[msgspec.Struct], inner: Encoder = value) -> Encoder:
    known = [field_encoder(name) for name in kind.__struct_fields__]
    if inner is argument:  # A caller's record issues no handles; it may hold one that never was.
        known = [Names.asked if encoder is Names.handle else encoder for encoder in known]
    # None stands for a field without a meaning of its own, most often an atom.
    encoders = [None if encoder is value else encoder for encoder in known]
    read = _reader(kind.__struct_fields__)
    label = kind.__name__

    def encode(names: Names, item: Any) -> Plain:
        plain = [label]
        plain += [
            (found if type(found) in ATOMS else inner(names, found))
            if encoder is None
            else encoder(names, found)
            for encoder, found in zip(encoders, read(item), strict=True)
        ]
        return plain

    return encode


def _reader(fields: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """Reads all fields of a struct at once."""
    if len(fields) > 1:
        return attrgetter(*fields)
    return lambda item: tuple([getattr(item, name) for name in fields])


def whole(names: Names, item: Any) -> Plain:
    """A record as plain data, with its lists element by element however long they are."""
    fields = [getattr(item, name) for name in item.__struct_fields__]
    return [type(item).__name__, *[_elements(names, field) for field in fields]]


def _elements(names: Names, item: Any) -> Plain:
    if isinstance(item, (list, tuple)):
        return [one if type(one) in ATOMS else _elements(names, one) for one in item]
    return value(names, item)


_ARGUMENT_ENCODERS: dict[type, Encoder] = {}


def argument(names: Names, item: Any) -> Plain:
    """An argument as plain data. Of a long sequence only the length is kept.

    What a cache passes is made from ops and from earlier answers, whose contents are compared.
    """
    kind = type(item)
    if kind in ATOMS:
        return item
    encoder = _ARGUMENT_ENCODERS.get(kind)
    if encoder is None:
        encoder = _ARGUMENT_ENCODERS[kind] = _argument_encoder(kind)
    return encoder(names, item)


def _argument_encoder(kind: type) -> Encoder:
    if issubclass(kind, msgspec.Struct):
        return _struct_encoder(kind, argument)
    if kind is RadixKey:
        return _short_key
    if kind is torch.Tensor:
        return _short_tensor
    return value


def _short_tensor(names: Names, item: torch.Tensor) -> Plain:
    count = item.numel()
    return tensor(item) if count <= INLINE_MAX else ["long", count]


def _short_key(names: Names, key: RadixKey) -> Plain:
    count = len(key.token_ids)
    return _key(names, key) if count <= INLINE_MAX else ["key", key.limit, ["long", count]]
