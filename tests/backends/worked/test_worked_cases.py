"""Examples where components meet, and historical bugs, on every core.

X numbers are those of the chapters on inserts (01) and on eviction and locks (02); BUG numbers
those of the cases. What needs a host tier is left out.
"""

from __future__ import annotations

from typing import Any

import pytest

from treedrift.backends.contract import ContractError, CorePoisonedError, UnknownNodeError


@pytest.mark.parametrize("inserted", [0, 5])
def test_x9_of_01_a_hit_on_a_leaf_that_a_window_cut(
    tree: Any, is_native: bool, inserted: int
) -> None:
    one = tree("swa", window=4)
    one.core.enable_external_cache_linker = True
    one.core.write_through_threshold = 1
    done = one.insert(range(1, 11), range(1, 11), inserted_len=inserted)
    is_hit = inserted == 0 or is_native
    assert done.steps == [
        [("rebuild", 2, [1, 2, 3, 4, 5, 6]), ("rebuild", 1, [7, 8, 9, 10])],
        [("backup", 2, 1)] if is_hit else [],
    ]
    assert one.nodes() == {2: (0, 0, 6), 1: (2, 6, 10)}


def test_x12_of_01_duplicates_without_a_window_peer_are_freed_apart(tree: Any) -> None:
    one = tree()
    one.insert(range(1, 5), range(10, 14))
    done = one.insert(range(1, 6), range(20, 25), evicted=2)
    assert done.steps == [[("free full", [20, 21]), ("free", [22, 23])]]
    done = one.insert(range(1, 7), range(30, 36), evicted=3, prev=1)
    assert done.steps == [[("free full", [31, 32]), ("free", [33]), ("free", [34])]]


def test_x9_of_02_locks_of_three_components(tree: Any) -> None:
    one = tree("swa", "mamba", window=2)
    one.insert([1, 2, 3, 4], [11, 12, 13, 14], state=900)
    assert one.nodes() == {2: (0, 0, 2), 1: (2, 2, 4)}

    def sizes() -> tuple[tuple[int, int], ...]:
        return one.sizes("full"), one.sizes("swa"), one.sizes("mamba")

    held = one.lock(1)
    assert sizes() == ((0, 4), (2, 2), (0, 1))
    assert {kind.name for kind in held.receipt.component_lock_uuids} == {"SWA"}
    assert one.release_early(held) == {}
    assert sizes() == ((0, 4), (4, 0), (1, 0))
    one.unlock(held, skip_swa=True)
    assert sizes() == ((4, 0), (4, 0), (1, 0))
    first, second = one.lock(1), one.lock(1, ["mamba"])
    assert one.release_early(second) == {}
    assert sizes() == ((0, 4), (2, 2), (0, 1))
    third = one.lock(1, ["swa"])
    assert third.receipt.component_lock_uuids == {}
    assert one.release_window(third, "swa") == {}
    assert sizes() == ((0, 4), (2, 2), (0, 1))
    for held, is_early in ((third, False), (second, True), (first, False)):
        one.unlock(held, skip_swa=is_early)
    assert sizes() == ((4, 0), (4, 0), (1, 0))


def test_x10_of_02_a_window_names_what_it_frees_by_full_slots(tree: Any) -> None:
    one = tree("swa", window=2)
    one.insert(range(1, 7), range(10, 70, 10))
    assert one.evict("swa", 2) == [("inner", {"swa": [[10, 20, 30, 40]]}, {"swa": 4})]
    assert one.evict("swa", 1) == [
        (1, {"full": [[50, 60]], "swa": [[50, 60]]}, {"full": 2, "swa": 2})
    ]
    assert one.evict("full", 1) == [(2, {"full": [[10, 20, 30, 40]]}, {"full": 4})]
    assert one.nodes() == {}


def test_bug_01_a_branch_is_proposed_and_honoured(tree: Any) -> None:
    one = tree("swa", window=2)
    one.insert(range(1, 7), range(101, 107), evicted=4)
    found = one.match([1, 2, 3, 9])
    assert (found.device, found.full_hit, found.swa_branch) == (0, 3, 3)
    done = one.insert([1, 2, 3], [201, 202, 203], evicted=1, branch=3)
    assert (done.prefix, done.raw.swa_branch_inserted) == (3, True)
    (actions, _) = done.steps
    assert actions == [
        ("free full", [102, 103]), ("rebuild", done.last, [202, 203]), ("free full", [201]),
    ]  # fmt: skip
    assert (one.sizes("swa"), one.sizes("full")) == ((4, 0), (6, 0))
    found = one.match([1, 2, 3, 9])
    assert (found.device, found.swa_branch) == (3, None)
    root, last = one.core.root_node_handle(), one.handle(found.node)
    assert one.core.collect_full_device_indices(last, root).tolist() == [101, 202, 203]


def two_holders(one: Any) -> tuple[Any, Any]:
    one.insert([1, 2], [101, 102])
    one.insert([1, 2, 3, 4], [101, 102, 103, 104], prev=2)
    first = one.lock(1)
    assert (one.sizes("full"), one.sizes("swa")) == ((2, 2), (2, 2))
    second = one.lock(2)
    assert (one.sizes("full"), one.sizes("swa")) == ((0, 4), (0, 4))
    return first, second


def test_bug_03_a_release_ends_at_its_boundary(tree: Any) -> None:
    one = tree("swa", window=2)
    first, second = two_holders(one)
    one.unlock(second)
    assert (one.sizes("full"), one.sizes("swa")) == ((2, 2), (2, 2))
    assert one.evict("swa", 4) == [
        (2, {"full": [[103, 104]], "swa": [[103, 104]]}, {"full": 2, "swa": 2})
    ]
    assert (one.sizes("full"), one.sizes("swa")) == ((0, 2), (0, 2))
    one.unlock(first)
    assert (one.sizes("full"), one.sizes("swa")) == ((2, 0), (2, 0))


def test_bug_03_a_release_without_its_boundary_takes_the_locks_of_others(tree: Any) -> None:
    one = tree("swa", window=2)
    first, second = two_holders(one)
    second.receipt.component_lock_uuids = dict.fromkeys(second.receipt.component_lock_uuids)
    one.unlock(second)
    assert (one.sizes("full"), one.sizes("swa")) == ((2, 2), (4, 0))
    with pytest.raises((ContractError, CorePoisonedError)):
        one.unlock(first)


def test_bug_05_a_leaf_without_a_window_is_a_leaf(tree: Any) -> None:
    one = tree("swa", window=2)
    done = one.insert([1, 2, 3, 4], range(101, 105), evicted=4)
    assert (done.prefix, done.last, done.steps) == (0, 1, [[]])
    assert (one.sizes("full"), one.sizes("swa")) == ((4, 0), (0, 0))
    found = one.match([1, 2, 3, 4])
    assert (found.device, found.full_hit, found.swa_branch) == (0, 4, 4)
    done = one.insert(range(1, 7), range(201, 207), prev=4, evicted=4)
    assert (done.prefix, done.steps) == (4, [[("rebuild", 2, [205, 206])], []])
    assert (one.sizes("full"), one.sizes("swa")) == ((6, 0), (2, 0))
    found = one.match(range(1, 7))
    slots = one.core.collect_full_device_indices(
        one.handle(found.node), one.core.root_node_handle()
    )
    assert (found.device, slots.tolist()) == (6, [101, 102, 103, 104, 205, 206])


@pytest.mark.parametrize("component", ["swa", "mamba"])
def test_bug_11_the_cold_rest_of_a_split_stays_cold(tree: Any, component: str) -> None:
    one = tree(component, window=8 if component == "swa" else None)
    states = [900, 901] if component == "mamba" else [None, None]
    one.insert([1, 2, 3, 4], range(101, 105), state=states[0])
    one.insert([7, 8], [107, 108], state=states[1])
    found = one.match([1, 2, 9])
    assert found.device == (2 if component == "swa" else 0)
    (victim,) = one.evict(component, 2 if component == "swa" else 1)
    assert (victim[0], victim[1]["full"]) == (1, [[103, 104]])
    (victim,) = one.evict("full", 2)
    assert (victim[0], victim[1]["full"]) == (2, [[107, 108]])


def test_bug_13_without_a_host_an_inner_node_loses_its_window(tree: Any) -> None:
    one = tree("swa", window=2)
    for length in (2, 4, 6):
        one.insert(range(1, length + 1), range(101, 101 + length), prev=length - 2)
    assert one.sizes("swa") == (6, 0)
    assert one.evict("swa", 2) == [("inner", {"swa": [[101, 102]]}, {"swa": 2})]
    assert (one.sizes("full"), one.sizes("swa")) == ((6, 0), (4, 0))
    found = one.match([1, 2, 9])
    assert (found.device, found.full_hit, found.swa_branch, found.best) == (0, 2, 2, 0)
    found = one.match([1, 2, 3, 9])
    assert (found.device, found.full_hit, found.swa_branch, found.best) == (0, 3, 3, 0)
    assert one.match(range(1, 7)).device == 6


def test_bug_15_a_branch_is_no_checkpoint_of_another_grid(tree: Any) -> None:
    one = tree("mamba", chunk=2, page=8)
    done = one.insert(range(1, 24), range(101, 124), state=900)
    assert one.nodes() == {1: (0, 0, 16)}
    assert done.last == 1
    found = one.match(range(1, 21))
    assert (found.device, found.full_hit, found.mamba_branch) == (16, 16, None)
    found = one.match([*range(1, 13), 99])
    assert (found.device, found.full_hit, found.mamba_branch) == (0, 8, 8)


def test_bug_17_recovery_frees_the_full_side_alone(tree: Any) -> None:
    one = tree("swa", window=2)
    one.insert([1, 2, 3, 4], [11, 12, 13, 14], evicted=2)
    done = one.insert([1, 2], [21, 22])
    assert done.steps == [[("free full", [11, 12]), ("rebuild", done.last, [21, 22])], []]
    assert (one.sizes("full"), one.sizes("swa")) == ((4, 0), (4, 0))
    found = one.match([1, 2, 3, 4])
    slots = one.core.collect_full_device_indices(
        one.handle(found.node), one.core.root_node_handle()
    )
    assert (found.device, slots.tolist()) == (4, [21, 22, 13, 14])


def test_bug_19_a_split_keeps_both_halves_locked(tree: Any) -> None:
    one = tree("swa", window=4)
    one.insert([1, 2, 3, 4], range(101, 105))
    held = one.lock(1)
    found = one.match([1, 2, 9])
    assert (found.device, found.best) == (2, 2)
    assert one.sizes("swa") == (0, 4)
    assert one.evict("swa", 4) == one.evict("full", 4) == []
    one.unlock(held)
    assert [victim[:2] for victim in one.evict("swa", 4)] == [
        (1, {"full": [[103, 104]], "swa": [[103, 104]]}),
        (2, {"full": [[101, 102]], "swa": [[101, 102]]}),
    ]
    with pytest.raises(UnknownNodeError):
        one.core.is_backuped(one.handle(1))
