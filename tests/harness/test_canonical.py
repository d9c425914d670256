"""Values as plain data: equal behaviour gives equal data, and any difference shows."""

from __future__ import annotations

import zlib
from array import array
from typing import Any

import msgspec
import pytest
import torch

from treedrift.backends.contract import (
    ComponentType,
    FreeDeviceKV,
    FreeDeviceKVFullOnly,
    IncLockRefResult,
    MatchResult,
    RadixKey,
)
from treedrift.harness.canonical import (
    INLINE_MAX,
    Names,
    UnknownNameError,
    argument,
    digest,
    pack,
    tensor,
    value,
)


def plain(item: Any) -> Any:
    return value(Names(), item)


# --- Names --------------------------------------------------------------------------------


def test_handles_are_numbered_in_the_order_in_which_they_appear() -> None:
    names = Names()
    assert [names.handle(handle) for handle in (70, 5, 70, 9)] == [0, 1, 0, 2]
    assert list(names.told) == [70, 5, 9]
    assert names.handle(None) is None


def test_sides_that_number_their_handles_differently_come_out_equal() -> None:
    one, other = Names(), Names()
    here = [MatchResult(2, handle, handle, handle) for handle in (3, 4, 3)]
    there = [MatchResult(2, handle, handle, handle) for handle in (900, 17, 900)]
    assert [value(one, item) for item in here] == [value(other, item) for item in there]


def test_another_order_of_the_same_handles_shows() -> None:
    one, other = Names(), Names()
    here = [value(one, MatchResult(2, handle, handle, handle)) for handle in (3, 4, 3)]
    there = [value(other, MatchResult(2, handle, handle, handle)) for handle in (3, 4, 4)]
    assert here != there


def test_a_handle_and_a_receipt_are_found_on_the_other_side_by_their_numbers() -> None:
    one, other = Names(), Names()
    for handle, twin in ((70, 5), (3, 70)):
        one.handle(handle)
        other.handle(twin)
        one.receipt(handle + 1)
        other.receipt(twin + 1)
    assert [one.handle_in(other, handle) for handle in (70, 3)] == [5, 70]
    assert [one.receipt_in(other, uuid) for uuid in (71, 4, None)] == [6, 71, None]


@pytest.mark.parametrize("handle", [99, True, 1.0, None, "1", [1]])
def test_what_is_no_handle_of_a_side_is_none_of_the_other_and_stays(handle: Any) -> None:
    one, other = Names(), Names()
    one.handle(1)
    other.handle(8)
    assert one.handle_in(other, handle) is handle


def test_a_number_that_is_given_up_is_not_given_again() -> None:
    names, twins = Names(), Names()
    for handle in (5, 6, 7):
        names.handle(handle)
        twins.handle(handle + 10)
    names.forget_handles([0, 2])
    twins.forget_handles([0, 2])
    assert names.handles() == {1: 6}
    assert names.handle_in(twins, 6) == 16
    assert [names.handle(5), names.handle(6)] == [3, 1]


def test_what_was_given_up_is_not_taken_for_another_on_the_other_side() -> None:
    names, twins = Names(), Names()
    for item in (5, 6):
        for one, shift in ((names, 0), (twins, 10)):
            one.handle(item + shift)
            one.receipt(item + shift)
    for one in (names, twins):
        one.forget_handles([0])
        one.forget_receipts([0])
    assert (names.handle_in(twins, 6), names.receipt_in(twins, 6)) == (16, 16)
    assert (names.handle_in(twins, None), names.receipt_in(twins, None)) == (None, None)
    with pytest.raises(UnknownNameError, match="the handle 5,"):
        names.handle_in(twins, 5)
    with pytest.raises(UnknownNameError, match="the receipt 5,"):
        names.receipt_in(twins, 5)
    assert names.receipt(7) == 2


def test_a_look_at_the_tree_numbers_handles_without_telling_them() -> None:
    names = Names()
    names.is_looking = True
    assert names.handle(7) == 0
    names.is_looking = False
    assert names.is_new(7)
    assert names.handle(7) == 0
    assert not names.is_new(7)


def test_asking_for_a_handle_numbers_nothing() -> None:
    names = Names()
    assert names.asked(5) == ["unknown", "5"]
    assert names.asked([]) == ["unknown", "[]"]
    assert names.asked(None) is None
    assert names.handle(6) == 0
    assert names.asked(6) == 0


def test_receipts_are_numbered_in_component_order() -> None:
    marks = {ComponentType.FULL: 2 * 10**14, ComponentType.SWA: 10**14}
    turned = dict(reversed(marks.items()))
    one, other = (IncLockRefResult(component_host_lock_uuids=ids) for ids in (marks, turned))
    assert plain(one) == plain(other)


def test_receipts_are_renamed_apart_from_handles() -> None:
    names = Names()
    names.handle(1)
    receipt = IncLockRefResult(node_id=1, component_lock_uuids={ComponentType.SWA: 10**15})
    other = IncLockRefResult(node_id=1, component_lock_uuids={ComponentType.SWA: 7})
    assert value(names, receipt) == value(names_with_handle(), other)


def names_with_handle() -> Names:
    names = Names()
    names.handle(1)
    return names


# --- Sequences ----------------------------------------------------------------------------


def test_a_short_tensor_is_kept_whole() -> None:
    assert tensor(torch.tensor([3, 1, 2])) == [3, 1, 2]
    assert tensor(torch.arange(INLINE_MAX)) == list(range(INLINE_MAX))


@pytest.mark.parametrize("position", [0, 70, 199])
def test_a_change_of_one_element_of_a_long_tensor_shows(position: int) -> None:
    values = torch.arange(200)
    changed = values.clone()
    changed[position] += 1
    assert tensor(values)[:2] == ["long", 200]
    assert tensor(values) != tensor(changed)


def test_another_order_of_a_long_tensor_shows() -> None:
    values = torch.arange(20_000)
    assert digest(values) != digest(values.flip(0))
    assert digest(values) == digest(values.clone())


def test_a_strided_view_is_the_same_as_its_copy() -> None:
    values = torch.arange(400)[::2]
    assert tensor(values) == tensor(values.clone())


@pytest.mark.parametrize(
    "other", [torch.tensor([1, 2], dtype=torch.int32), torch.tensor([1.0, 2.0]), torch.ones(1, 2)]
)
def test_another_type_or_shape_of_a_tensor_shows(other: torch.Tensor) -> None:
    assert tensor(other)[0] == "tensor"
    assert tensor(other) != tensor(torch.tensor([1, 2]))


def test_a_long_list_keeps_length_and_checksum() -> None:
    items = list(range(INLINE_MAX + 1))
    short, long = plain(items[:-1]), plain(items)
    assert short == items[:-1]
    assert long[:2] == ["long", INLINE_MAX + 1]
    assert plain([*items[:-1], -1]) != long
    assert long[2] == zlib.crc32(msgspec.msgpack.encode(items))


def test_a_mapping_is_the_same_in_any_order() -> None:
    one = {ComponentType.FULL: 1, ComponentType.SWA: 2}
    assert plain(one) == plain(dict(reversed(one.items())))


# --- Keys, records and numbers ------------------------------------------------------------


def test_a_key_shows_tokens_namespace_and_limit() -> None:
    key = RadixKey(array("q", [1, 2, 3]), extra_key="a", cache_salt="b")
    assert plain(key) == ["key", "a", "b", False, [1, 2, 3]]
    limited = RadixKey(array("q", [1, 2, 3]), extra_key="a", cache_salt="b", limit=2)
    assert plain(limited) != plain(key)


def test_a_long_key_shows_a_change_of_one_token() -> None:
    tokens = list(range(300))
    key, other = RadixKey(array("q", tokens)), RadixKey(array("q", [*tokens[:-1], 0]))
    assert plain(key) != plain(other)


def test_a_long_argument_keeps_its_length_alone() -> None:
    key = RadixKey(array("q", range(300)))
    assert argument(Names(), key) == ["key", None, ["long", 300]]
    assert argument(Names(), torch.arange(300)) == ["long", 300]
    assert argument(Names(), torch.arange(2)) == [0, 1]


def test_records_of_another_type_with_equal_fields_differ() -> None:
    slots = [torch.tensor([1])]
    assert plain(FreeDeviceKV(slots)) == ["FreeDeviceKV", [[1]]]
    assert plain(FreeDeviceKV(slots)) != plain(FreeDeviceKVFullOnly(slots))


@pytest.mark.parametrize("number", [0, -1, 2**63, 2**64 - 1, -(2**63)])
def test_a_number_of_64_bits_is_packed_as_it_is(number: int) -> None:
    assert msgspec.msgpack.decode(pack([plain(number)])) == [number]


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**40])
def test_a_wider_number_is_packed_as_text(number: int) -> None:
    assert msgspec.msgpack.decode(pack({"a": [plain(number)]})) == {"a": [str(number)]}


def test_what_is_plain_can_be_packed() -> None:
    items = [None, True, 1, "x", 1.5, 2**70, torch.tensor([1]), (1, 2), {"a": 1}, {1, 2}]
    again = msgspec.msgpack.decode(pack(plain(items)))
    assert again[:7] == [None, True, 1, "x", 1.5, str(2**70), [1]]
