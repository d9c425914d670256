"""Worked examples of Mamba states, T1 to T13, as far as the device tier goes, on every core.

T4, T6 to T8, T10 and T11 need a host tier, T9 sessions; T13 is the cache's.
"""

from __future__ import annotations

from typing import Any

import pytest

TABLE = [
    ([], 900, (0, 0, True, [[]]), [], {}),
    ([1, 2, 3, 4], 901, (0, 1, False, [[]]), [1], {1: [901]}),
    ([1, 2, 3, 4], 902, (4, 1, True, [[("free", [104, 105, 106, 107])]]), [1], {1: [901]}),
    ([1, 2], 903, (2, 2, False, [[("free", [108, 109])]]), [2, 1], {1: [901], 2: [903]}),
    ([1, 2], 904, (2, 2, True, [[("free", [110, 111])]]), [2, 1], {1: [901], 2: [903]}),
    (
        [1, 2, 3, 4, 5, 6],
        905,
        (4, 3, False, [[("free", [112, 113]), ("free", [114, 115])]]),
        [3, 2, 1],
        {1: [901], 2: [903], 3: [905]},
    ),
    (
        [1, 2, 3, 9],
        906,
        (3, 5, False, [[("free", [118, 119]), ("free", [120])]]),
        [5, 3, 2, 1],
        {1: [901], 2: [903], 3: [905], 4: None, 5: [906]},
    ),
]
"""T2: tokens, state, what the insert does, then the states' recency and the states."""


def grown(one: Any, *inserts: tuple[list[int], int]) -> list[Any]:
    """Insert one after the other; full slots go on from 100."""
    slot, done = 100, []
    for tokens, state in inserts:
        done.append(one.insert(tokens, range(slot, slot + len(tokens)), state=state))
        slot += len(tokens)
    return done


def prefixes(*lengths: int) -> list[tuple[list[int], int]]:
    """Inserts of prefixes of 1, 2, 3 and so on, with states from 900."""
    return [(list(range(1, length + 1)), 900 + i) for i, length in enumerate(lengths)]


@pytest.mark.parametrize(
    ("chunk", "page", "branch"),
    [(1, 1, 23), (4, 1, 20), (4, 2, 20), (6, 4, 12), (2, 2, 22), (3, 2, 18)],
)
def test_t1_a_branch_lies_on_the_grid_of_chunk_and_page(
    tree: Any, chunk: int, page: int, branch: int
) -> None:
    one = tree("mamba", chunk=chunk, page=page)
    one.insert(range(1, 25), range(100, 124), state=900)
    found = one.match(range(1, 24))
    assert found.full_hit == {1: 23, 2: 22, 4: 20}[page]
    assert (found.device, found.best, found.mamba_branch) == (0, 0, branch)
    found = one.match(range(1, 25))
    assert (found.device, found.mamba_branch) == (24, None)


@pytest.mark.parametrize("count", range(1, len(TABLE) + 1))
def test_t2_inserts_tombstones_and_states_that_exist(tree: Any, count: int) -> None:
    one = tree("mamba")
    made = grown(one, *((tokens, state) for tokens, state, *_ in TABLE[:count]))
    for done, (_, _, expected, _, _) in zip(made, TABLE, strict=False):
        assert (done.prefix, done.last, done.raw.mamba_exist, done.steps) == expected
    *_, order, states = TABLE[count - 1]
    assert one.values("mamba") == states
    assert one.sizes("mamba") == (len(order), 0)
    if count == len(TABLE):
        assert one.sizes("full") == (7, 0)
        assert one.nodes() == {
            2: (0, 0, 2), 4: (2, 2, 3), 1: (4, 3, 4), 3: (1, 4, 6), 5: (4, 3, 4),
        }  # fmt: skip
    assert one.recency("mamba") == order


def test_t3_a_path_keeps_one_state(tree: Any) -> None:
    one = tree("mamba", cap=1)
    made = grown(
        one,
        *prefixes(2, 4, 6),
        ([1, 2, 3, 4, 5, 6], 903),
        ([1, 2, 3, 4], 904),
        ([1, 2, 9], 905),
        ([1, 2], 906),
        ([1, 2, 9, 8], 907),
    )
    assert [done.steps for done in made] == [
        [[("cap", 1, [])], []],
        [[("free", [102, 103]), ("cap", 2, [[900]])], []],
        [[("free", [106, 107]), ("free", [108, 109]), ("cap", 3, [[901]])], []],
        [[("free", [112, 113]), ("free", [114, 115]), ("free", [116, 117])]],
        [[("free", [118, 119]), ("free", [120, 121]), ("cap", 2, [])], []],
        [[("free", [122, 123]), ("cap", 4, [])], []],
        [[("free", [125, 126]), ("cap", 1, [])], []],
        [[("free", [127, 128]), ("free", [129]), ("cap", 5, [[905]])], []],
    ]
    assert [done.raw.mamba_exist for done in made] == [False] * 3 + [True] + [False] * 4
    assert one.values("mamba") == {1: [906], 2: [904], 3: [902], 4: None, 5: [907]}
    assert one.sizes("mamba") == (4, 0)


def test_t3_a_locked_state_stays_beyond_the_cap(tree: Any) -> None:
    one = tree("mamba", cap=2)
    grown(one, *prefixes(2))
    held = one.lock(1)
    freed = []
    for i, length in enumerate((4, 6, 8, 10, 12)):
        if length == 12:
            one.unlock(held)
        slots = range(200 + 20 * i, 200 + 20 * i + length)
        done = one.insert(range(1, length + 1), slots, state=901 + i)
        freed += [action for step in done.steps for action in step if action[0] == "cap"]
    assert freed == [
        ("cap", 2, []),
        ("cap", 3, [[901]]),
        ("cap", 4, [[902]]),
        ("cap", 5, [[903]]),
        ("cap", 6, [[900]]),
    ]


def test_t5_walks_and_locks(tree: Any) -> None:
    one = tree("mamba")
    grown(one, *prefixes(2, 4, 6))
    first, second = one.lock(2), one.lock(2, ["mamba"])
    assert (one.sizes("full"), one.sizes("mamba")) == ((2, 4), (2, 1))
    assert one.evict("mamba", 9) == [
        ("inner", {"mamba": [[900]]}, {"mamba": 1}),
        (3, {"full": [[110, 111]], "mamba": [[902]]}, {"full": 2, "mamba": 1}),
    ]
    assert one.sizes("mamba") == (0, 1)
    one.unlock(first)
    assert one.sizes("mamba") == (1, 0)
    assert one.evict("mamba", 9) == [("inner", {"mamba": [[901]]}, {"mamba": 1})]
    assert (one.sizes("full"), one.sizes("mamba")) == ((0, 4), (0, 0))
    third = one.lock(2)
    assert one.sizes("mamba") == (0, 0)
    one.insert([1, 2, 3, 4], range(120, 124), state=903)
    assert one.sizes("mamba") == (0, 1)
    one.unlock(third)
    assert one.sizes("mamba") == (1, 0)
    one.unlock(second)
    assert one.sizes("full") == (4, 0)


def test_t12_a_state_ends_up_on_the_deepest_fragment(tree: Any) -> None:
    for component, order in (("swa", [1, 2]), ("mamba", [1])):
        one = tree("swa", "mamba", window=2, page=2, chunk=2)
        done = one.insert(range(1, 7), range(101, 107), state=900)
        assert done.steps == [
            [("rebuild", 2, [101, 102, 103, 104]), ("rebuild", 1, [105, 106])],
            [],
        ]
        assert one.nodes() == {2: (0, 0, 4), 1: (2, 4, 6)}
        assert one.values("mamba") == {1: [900], 2: None}
        assert one.recency(component) == order


def test_t12_a_window_takes_the_state_along(tree: Any) -> None:
    one = tree("swa", "mamba", window=2)
    grown(one, *prefixes(2, 4, 6))
    assert one.evict("mamba", 1) == [("inner", {"mamba": [[900]]}, {"mamba": 1})]
    assert (one.sizes("full"), one.sizes("swa")) == ((6, 0), (6, 0))
    assert one.evict("swa", 4) == [
        ("inner", {"swa": [[100, 101]]}, {"swa": 2}),
        ("inner", {"swa": [[104, 105]], "mamba": [[901]]}, {"swa": 2, "mamba": 1}),
    ]
    assert one.evict("mamba", 1) == [
        (
            3,
            {"full": [[110, 111]], "swa": [[110, 111]], "mamba": [[902]]},
            {"full": 2, "swa": 2, "mamba": 1},
        )
    ]
