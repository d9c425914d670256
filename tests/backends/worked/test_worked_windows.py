"""Worked examples of sliding windows, W1 to W13, as far as the device tier goes, on every core.

Expected values are those of the specification; W6 to W8 and W11 need a host tier.
"""

from __future__ import annotations

from typing import Any

import pytest

from treedrift.backends.contract import UnsupportedError


def test_w1_a_leaf_is_clipped_at_the_evicted_cursor_then_capped(tree: Any) -> None:
    def grown() -> Any:
        one = tree("swa", window=3)
        done = one.insert(range(1, 9), range(1, 9), evicted=4)
        assert done.steps == [[("rebuild", 3, [5]), ("rebuild", 1, [6, 7, 8])], []]
        assert (done.prefix, done.last) == (0, 1)
        assert done.adopted == {"full": [(0, 8)], "swa": [(4, 8)]}
        assert one.nodes() == {2: (0, 0, 4), 3: (2, 4, 5), 1: (3, 5, 8)}
        assert one.values("full") == {1: [6, 7, 8], 2: [1, 2, 3, 4], 3: [5]}
        assert one.values("swa") == {1: [6, 7, 8], 2: None, 3: [5]}
        return one

    assert grown().recency("swa") == [1, 3]
    one = grown()
    for length in (4, 5, 6):
        found = one.match(range(1, length + 1))
        assert (found.device, found.node, found.best) == (0, 0, 0)
        assert (found.swa_branch, found.full_hit) == (length, length)
    assert found.visited == 4
    assert one.nodes() == {2: (0, 0, 4), 3: (2, 4, 5), 4: (3, 5, 6), 1: (4, 6, 8)}
    assert one.values("swa") == {1: [7, 8], 2: None, 3: [5], 4: [6]}
    found = one.match(range(1, 8))
    assert (found.device, found.best, found.swa_branch) == (7, 5, None)
    found = one.match(range(1, 9))
    assert (found.device, found.best, found.swa_branch) == (8, 1, None)
    assert one.values("swa") == {1: [8], 2: None, 3: [5], 4: [6], 5: [7]}
    assert one.recency("swa") == [1, 5, 4, 3]


def test_w2_an_overlap_is_recovered_from_the_evicted_cursor_on(tree: Any) -> None:
    one = tree("swa", window=3)
    assert one.insert(range(1, 7), range(1, 7), evicted=6).steps == [[]]
    done = one.insert(range(1, 9), range(7, 15), prev=2, evicted=4)
    assert done.steps == [
        [("free full", [5, 6]), ("rebuild", 1, [11, 12]), ("free full", [9, 10])],
        [("rebuild", 3, [13, 14])],
        [],
    ]
    assert (done.prefix, done.last) == (6, 3)
    assert done.adopted == {"full": [(4, 8)], "swa": [(4, 8)]}
    assert one.nodes() == {2: (0, 0, 4), 1: (2, 4, 6), 3: (1, 6, 8)}
    assert one.values("full") == {1: [11, 12], 2: [1, 2, 3, 4], 3: [13, 14]}
    assert one.values("swa") == {1: [11, 12], 2: None, 3: [13, 14]}
    assert (one.sizes("full"), one.sizes("swa")) == ((8, 0), (4, 0))


def test_w3_recovery_under_a_lock_keeps_the_full_slots(tree: Any) -> None:
    one = tree("swa", window=2)
    one.insert(range(1, 7), range(1, 7))
    assert one.nodes() == {2: (0, 0, 4), 1: (2, 4, 6)}
    held = one.lock(1)
    assert held.boundary("swa") is not None
    assert one.release_early(held) == {}
    assert one.evict("swa", 6) == [
        ("inner", {"swa": [[1, 2, 3, 4]]}, {"swa": 4}),
        ("inner", {"swa": [[5, 6]]}, {"swa": 2}),
    ]
    done = one.insert(range(1, 8), range(7, 14), evicted=3)
    assert done.steps == [
        [("recover", 2, [4], [10]), ("free full", [7, 8, 9])],
        [("recover", 1, [5, 6], [11, 12])],
        [("rebuild", 4, [13])],
        [],
    ]
    assert done.prefix == 6
    assert done.adopted == {"swa": [(3, 7)], "full": [(6, 7)]}
    assert one.nodes() == {3: (0, 0, 3), 2: (3, 3, 4), 1: (2, 4, 6), 4: (1, 6, 7)}
    assert one.values("full") == {1: [5, 6], 2: [4], 3: [1, 2, 3], 4: [13]}
    assert one.values("swa") == {1: [11, 12], 2: [10], 3: None, 4: [13]}
    assert (one.sizes("full"), one.sizes("swa")) == ((1, 6), (4, 0))
    one.unlock(held, skip_swa=True)
    assert (one.sizes("full"), one.sizes("swa")) == ((7, 0), (4, 0))


@pytest.mark.parametrize("is_pending", [False, True])
def test_w4_a_value_that_appears_under_a_lock_is_protected(tree: Any, is_pending: bool) -> None:
    one = tree("swa", window=3)
    one.core.enable_external_cache_linker = True
    one.insert(range(1, 5), range(1, 5), evicted=4)
    if is_pending:
        one.core.mark_external_linker_offload_pending(one.handle(1))
    held = one.lock(1)
    assert held.boundary("swa") is not None
    assert one.sizes("swa") == (0, 0)
    done = one.insert(range(1, 5), range(5, 9), evicted=2)
    moved = [("split", 1, 1, 2, 1)] if is_pending else []
    assert done.steps == [
        [*moved, ("recover", 1, [3, 4], [7, 8]), ("free full", [5, 6])],
        [],
    ]
    assert one.nodes() == {2: (0, 0, 2), 1: (2, 2, 4)}
    assert one.sizes("swa") == (0, 2)
    # The boundary moved with the older edge.
    assert one.lock(2).boundary("swa") is None
    assert one.lock(1).boundary("swa") == held.boundary("swa")
    one.unlock(held)


def test_w4_the_last_release_makes_the_value_evictable(tree: Any) -> None:
    one = tree("swa", window=3)
    one.insert(range(1, 5), range(1, 5), evicted=4)
    held = one.lock(1)
    one.insert(range(1, 5), range(5, 9), evicted=2)
    one.unlock(held)
    assert one.sizes("swa") == (2, 0)


def test_w5_a_boundary_stays_on_the_older_edge_of_a_split(tree: Any) -> None:
    one = tree("swa", window=4)
    one.insert(range(1, 5), range(1, 5))
    first = one.lock(1)
    assert one.match(range(1, 4)).device == 3
    assert one.nodes() == {2: (0, 0, 3), 1: (2, 3, 4)}
    second = one.lock(1)
    assert second.boundary("swa") == first.boundary("swa") is not None
    third = one.lock(2)
    assert third.boundary("swa") is None
    one.unlock(first)
    assert one.sizes("swa") == (0, 4)
    one.unlock(third)
    assert one.sizes("swa") == (0, 4)
    one.unlock(second)
    assert one.sizes("swa") == (4, 0)
    again = one.lock(1)
    assert again.boundary("swa") == first.boundary("swa")
    one.unlock(again)


def test_w9_splits_of_a_buffer_are_told(tree: Any) -> None:
    one = tree("swa", window=3)
    one.core.set_host_memory_buffer_only()
    done = one.insert(range(1, 8), range(1, 8), evicted=2)
    assert done.steps == [
        [
            ("split", None, 1, 2, 1),
            ("split", None, 1, 3, 1),
            ("rebuild", 3, [3, 4]),
            ("rebuild", 1, [5, 6, 7]),
        ],
        [],
    ]
    assert one.nodes() == {2: (0, 0, 2), 3: (2, 2, 4), 1: (3, 4, 7)}


def test_w9_the_chain_of_a_buffers_leaf_is_stored(tree: Any) -> None:
    one = tree("swa", window=3)
    one.core.set_host_memory_buffer_only()
    one.core.enable_external_cache_linker = True
    one.core.write_through_threshold = 1
    assert one.insert(range(1, 8), range(1, 8), evicted=2).steps[1] == [("backup", 2, 3, 1)]


def test_w9_a_window_is_attached_inside_a_tombstone(tree: Any) -> None:
    one = tree("swa", window=3)
    one.core.set_host_memory_buffer_only()
    one.insert(range(1, 7), range(1, 7), evicted=6)
    assert one.ranges(range(1, 7), 0, 6) == [(0, 6)]
    assert one.attach(range(1, 7), 2, 4, [53, 54]) == [
        ("split", None, 1, 2, 1),
        ("split", None, 1, 3, 1),
    ]
    assert one.nodes() == {2: (0, 0, 2), 3: (2, 2, 4), 1: (3, 4, 6)}
    assert one.values("swa") == {1: None, 2: None, 3: [53, 54]}
    assert one.ranges(range(1, 7), 0, 6) == [(0, 2), (4, 6)]
    assert one.sizes("swa") == (2, 0)


@pytest.mark.parametrize(
    ("gates", "lengths"),
    [(False, {2: 2, 4: 4, 5: 4, 7: 7}), (True, {2: 0, 4: 0, 5: 0, 7: 7})],
)
def test_w10_a_ring_lets_matches_end_on_tombstones(
    tree: Any, gates: bool, lengths: dict[int, int]
) -> None:
    one = tree("swa", window=3, swa_gates_prefix_match=gates)
    one.insert(range(1, 5), range(1, 5), evicted=4)
    one.insert(range(1, 6), range(11, 16), evicted=4, prev=4)
    one.insert(range(1, 8), range(21, 28), evicted=5, prev=5)
    assert one.nodes() == {1: (0, 0, 4), 2: (1, 4, 5), 3: (2, 5, 7)}
    assert one.values("swa") == {1: None, 2: [15], 3: [26, 27]}
    found = {length: one.match(range(1, length + 1)) for length in lengths}
    assert {length: match.device for length, match in found.items()} == lengths
    assert found[2].best == (4 if not gates else 0)
    assert found[5].swa_branch == 5
    assert found[7].swa_branch is None


def test_w12_pages_of_two(tree: Any) -> None:
    one = tree("swa", window=3, page=2)
    done = one.insert(range(1, 12), range(1, 12), evicted=2)
    assert done.steps == [[("rebuild", 3, [3, 4, 5, 6]), ("rebuild", 1, [7, 8, 9, 10])], []]
    assert one.nodes() == {2: (0, 0, 2), 3: (2, 2, 6), 1: (3, 6, 10)}
    found = one.match(range(1, 6))
    assert (found.device, found.swa_branch, found.full_hit) == (0, 4, 4)
    assert one.nodes() == {2: (0, 0, 2), 4: (2, 2, 4), 3: (4, 4, 6), 1: (3, 6, 10)}
    assert one.values("swa") == {1: [7, 8, 9, 10], 2: None, 3: [5, 6], 4: [3, 4]}
    held = one.lock(1)
    assert one.sizes("swa") == (4, 4)
    assert one.evict("swa", 3) == [
        ("inner", {"swa": [[3, 4]]}, {"swa": 2}),
        ("inner", {"swa": [[5, 6]]}, {"swa": 2}),
    ]
    assert one.release_early(held) == {}
    assert one.evict("swa", 1) == [("inner", {"swa": [[7, 8, 9, 10]]}, {"swa": 4})]
    assert one.ranges(range(1, 12), 0, 10) == [(0, 10)]
    assert one.ranges(range(1, 12), 3, 9) == [(3, 9)]
    done = one.insert(range(1, 11), range(21, 31), evicted=6, prev=4)
    assert done.steps == [
        [("free full", [25, 26]), ("recover", 1, [7, 8, 9, 10], [27, 28, 29, 30])],
        [],
    ]
    assert done.adopted == {"swa": [(6, 10)]}
    assert one.values("swa")[1] == [27, 28, 29, 30]


def test_w12_recency_after_the_split(tree: Any) -> None:
    one = tree("swa", window=3, page=2)
    one.insert(range(1, 12), range(1, 12), evicted=2)
    one.match(range(1, 6))
    assert one.recency("swa") == [1, 3, 4]


def test_w13_a_second_window_cuts_what_the_first_one_queued(tree: Any, core_name: str) -> None:
    if "@" in core_name:
        with pytest.raises(UnsupportedError, match="second window"):
            tree("swa", "aux_swa", window=4, aux_window=2)
        return
    one = tree("swa", "aux_swa", window=4, aux_window=2)
    done = one.insert(range(1, 9), range(1, 9), evicted=2, aux_evicted=5)
    assert done.steps == [
        [
            ("rebuild", 3, [3, 4]),
            ("rebuild", 4, [5]),
            ("rebuild", 5, [6]),
            ("rebuild", 1, [7, 8]),
            ("rebuild", 5, [6], "aux_swa"),
            ("rebuild", 1, [7, 8], "aux_swa"),
        ],
        [],
    ]
    assert done.adopted == {"full": [(0, 8)], "swa": [(2, 8)], "aux_swa": [(5, 8)]}
    assert one.values("swa") == {1: [7, 8], 2: None, 3: [3, 4], 4: [5], 5: [6]}
    assert one.values("aux_swa") == {1: [7, 8], 2: None, 3: None, 4: None, 5: [6]}
    held = one.lock(1)
    assert one.release_window(held, "aux_swa") == {}
    assert (one.sizes("full"), one.sizes("swa")) == ((0, 8), (2, 4))
    assert one.sizes("aux_swa") == (3, 0)
    assert held.boundary("aux_swa") is not None
    assert held.boundary("aux_swa") != held.boundary("swa")


def test_w13_a_second_window_recovers_from_the_callers_prefix_on(tree: Any, core_name: str) -> None:
    if "@" in core_name:
        pytest.skip("a released core has no second window")
    one = tree("swa", "aux_swa", window=4, aux_window=2)
    one.insert(range(1, 9), range(1, 9), evicted=2, aux_evicted=5)
    assert one.evict("swa", 4) == [
        ("inner", {"swa": [[3, 4]]}, {"swa": 2}),
        ("inner", {"swa": [[5]]}, {"swa": 1}),
        ("inner", {"swa": [[6]], "aux_swa": [[6]]}, {"swa": 1, "aux_swa": 1}),
    ]
    done = one.insert(range(1, 9), range(11, 19), prev=1)
    assert done.steps == [
        [
            ("free full", [1, 2]),
            ("rebuild", 6, [11]),
            ("rebuild", 2, [12]),
            ("rebuild", 2, [12], "aux_swa"),
        ],
        [("free full", [3, 4]), ("rebuild", 3, [13, 14]), ("rebuild", 3, [13, 14], "aux_swa")],
        [("free full", [5]), ("rebuild", 4, [15]), ("rebuild", 4, [15], "aux_swa")],
        [("free full", [6]), ("rebuild", 5, [16]), ("rebuild", 5, [16], "aux_swa")],
        [("free", [17, 18])],
    ]
    assert done.adopted == {"full": [(0, 6)], "swa": [(0, 6)], "aux_swa": [(1, 6)]}
    assert one.nodes()[6] == (0, 0, 1)


def test_w13_a_second_window_takes_peers_and_no_slots(tree: Any, core_name: str) -> None:
    if "@" in core_name:
        pytest.skip("a released core has no second window")
    one = tree("swa", "aux_swa", window=4, aux_window=2)
    one.insert(range(1, 9), range(1, 9))
    assert one.nodes() == {3: (0, 0, 2), 2: (3, 2, 4), 4: (2, 4, 6), 1: (4, 6, 8)}
    one.lock(1)
    assert (one.sizes("swa"), one.sizes("aux_swa")) == ((4, 4), (6, 2))
    assert one.evict("aux_swa", 6) == [
        ("inner", {"swa": [[1, 2]], "aux_swa": [[1, 2]]}, {"swa": 2, "aux_swa": 2}),
        ("inner", {"swa": [[3, 4]], "aux_swa": [[3, 4]]}, {"swa": 2, "aux_swa": 2}),
        ("inner", {"aux_swa": [[5, 6]]}, {"aux_swa": 2}),
    ]
    done = one.insert(range(1, 9), range(11, 19))
    assert done.steps == [
        [
            ("move peers", [1, 2], [11, 12], "aux_swa"),
            ("recover", 3, [1, 2], [11, 12]),
            ("rebuild", 3, [1, 2], "aux_swa"),
        ],
        [
            ("move peers", [3, 4], [13, 14], "aux_swa"),
            ("recover", 2, [3, 4], [13, 14]),
            ("rebuild", 2, [3, 4], "aux_swa"),
        ],
        [
            ("move peers", [5, 6], [15, 16], "aux_swa"),
            ("rebuild", 4, [5, 6], "aux_swa"),
            ("free", [15, 16]),
        ],
        [("free", [17, 18])],
    ]
    assert done.adopted == {"swa": [(0, 4)], "aux_swa": [(0, 6)]}
    assert one.values("aux_swa") == {1: [7, 8], 2: [13, 14], 3: [11, 12], 4: [15, 16]}


def test_an_unaligned_branch_is_measured_on_the_key_as_given(tree: Any, is_native: bool) -> None:
    one = tree("swa", window=2, page=2)
    done = one.insert(range(1, 6), range(1, 6), branch=5)
    assert done.raw.swa_branch_inserted is not is_native
