"""An explained divergence: what parted, on which nodes, after which ops, whatever kind it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from tests.harness import mutants
from tests.harness.spoilt_pair import CONFIG, PAIR, STEPS, WRONG_ORDER, spoilt_pair
from treedrift.harness.config import Config
from treedrift.harness.explain import LAST_OPS_KEPT, OPS_KEPT, explain
from treedrift.harness.explanation import Explanation, TreeNode
from treedrift.harness.lockstep import LocalClient, Lockstep
from treedrift.harness.ops import (
    AnyOp,
    Ask,
    CoreInsert,
    CoreMatch,
    Evict,
    Lock,
    Reset,
    Touch,
    Unlock,
)
from treedrift.harness.remote import FailureKind, WorkerFailure
from treedrift.harness.side import Batch, LocalSide, Settings
from treedrift.harness.trace import Trace, new_trace
from treedrift.models.drills import DRILLS
from treedrift.models.profiles import profile_named
from treedrift.models.swarm import generate_case

WATCHED = Settings(tree_every=1, inspect=True)
"""How these sides are watched, all of which are Python cores, whatever they are called."""


def explained(
    steps: Sequence[AnyOp],
    *mutations: mutants.Mutation,
    config: Config = CONFIG,
    settings: Settings = WATCHED,
    **header: Any,
) -> Explanation:
    trace = new_trace(config, list(steps), **header)
    found = explain(trace, spoilt_pair(*mutations), PAIR, settings=settings)
    assert found is not None
    return found


def shown(tree: list[TreeNode] | None) -> list[tuple[int, str, str]]:
    assert tree is not None
    return [(node.depth, node.label, node.slots) for node in tree]


def differing(explanation: Explanation) -> dict[str, tuple[str, str]]:
    return {row.field: (row.left, row.right) for row in explanation.rows if row.differs}


# --- What parts ---------------------------------------------------------------------------


def test_a_pair_that_agrees_needs_no_explanation() -> None:
    assert explain(new_trace(CONFIG, list(STEPS)), spoilt_pair(), PAIR, settings=WATCHED) is None


def test_a_call_that_parts_is_told_with_its_values_side_by_side() -> None:
    found = explained(STEPS, mutants.wrong_free_order)
    assert found.signature == WRONG_ORDER
    assert (found.op_index, found.op_kind, found.op) == (1, "evict", "evict(count=2)")
    assert found.call == "evict_device_leaf(node_id=0, is_write_back=False)"
    assert differing(found) == {"result.device_frees.full": ("[[1, 2]]", "[[2, 1]]")}
    assert found.rule == "EVD-21"
    assert found.config == {"capacity": 32}
    assert found.op_count == 2


def test_the_trees_before_and_after_are_those_of_the_op() -> None:
    for side in explained(STEPS, mutants.wrong_free_order).sides:
        assert shown(side.tree_before) == [(0, "root", ""), (1, "[1, 2]", "[1, 2]")]
        assert shown(side.tree_after) == [(0, "root", "")]


def test_the_tree_before_the_first_op_is_the_root_alone() -> None:
    found = explained([CoreInsert([1])], DRILLS["uncounted-leaf"].mutate)
    assert found.op_index == 0
    assert shown(found.sides[0].tree_before) == [(0, "root", "")]


def test_ops_say_which_nodes_they_touched_and_which_are_concerned() -> None:
    steps = [CoreInsert([5]), *STEPS[:1], CoreMatch([5]), Evict(9)]
    found = explained(steps, mutants.wrong_free_order)
    (concerned,) = found.concerned
    touching = [op.index for op in found.ops if concerned in op.touches]
    assert [op.index for op in found.ops if op.is_concerned] == touching == [1, 3]
    tree = found.sides[0].tree_before
    assert tree is not None
    assert [node.label for node in tree if node.is_concerned] == ["[1, 2]"]


def test_what_a_look_shows_is_told_of_the_node_that_differs() -> None:
    steps = [CoreInsert([1, 2]), CoreInsert([9]), Touch([1, 2])]
    found = explained(steps, DRILLS["skipped-touch"].mutate)
    assert found.where.endswith("access_rank")
    assert list(differing(found)) == ["access_rank"]
    assert found.call is None
    left, right = (
        {
            node.label: fact
            for node in side.tree_after or []
            for fact in node.facts
            if "recency" in fact
        }
        for side in found.sides
    )
    # A fact that all nodes have is shown where the sides differ in it, and nowhere else.
    assert left.keys() == right.keys() < {"root", "[1, 2]", "[9]"}
    assert left
    assert all(left[label] != right[label] for label in left)


def short_device_match(core: Any) -> None:
    """A match on the device alone tells one unit too little."""
    match = core.match_full_device_prefix
    core.match_full_device_prefix = lambda key: (match(key)[0] - 1, *match(key)[1:])


HYBRID = Config(components=("full", "swa", "mamba"), window=2)
WINDOWS = [
    CoreInsert([1, 2, 3], swa_evicted=1),
    CoreInsert([1, 2, 3, 4, 5], swa_evicted=1),
    Lock("live:1"),
    CoreMatch([1, 2, 3], device_only=True),
]


@pytest.mark.parametrize("inspect", [True, False])
def test_a_tree_shows_windows_and_states_and_where_a_window_is_gone(inspect: bool) -> None:
    settings = Settings(tree_every=1, inspect=inspect)
    found = explained(WINDOWS, short_device_match, config=HYBRID, settings=settings)
    assert found.rule == "PATH-2"
    shown_facts = {
        node.slots: {fact for fact in node.facts if not fact.startswith("hits")}
        for node in found.sides[0].tree_after or []
    }
    locks = [{"locked 1"}, {"window locked 1", "state locked 1"}] if inspect else [set(), set()]
    assert shown_facts == {
        "": set(),
        "[1]": {"no window"} | locks[0],
        "[2, 3]": {"window [1, 2]", "state 1"} | locks[0],
        "[7, 8]": {"window [5, 6]", "state 2"} | locks[0] | locks[1],
    }


def test_the_root_is_concerned_only_if_no_other_node_is() -> None:
    steps = [CoreInsert([1, 2]), CoreMatch([1])]
    found = explained(steps, DRILLS["partial-match-refused"].mutate)
    assert differing(found)["result.last_device_node"]
    trees = [side.tree_after or [] for side in found.sides]
    labels = {node.label for tree in trees for node in tree if node.is_concerned}
    assert "[1]" in labels
    assert "root" not in labels


def test_facts_are_shown_where_they_are_unusual_or_differ() -> None:
    steps = [CoreInsert([1, 2]), Lock("live:0"), CoreMatch([1])]
    found = explained(steps, mutants.lost_hit_count)
    trees = [side.tree_after or [] for side in found.sides]
    uppers = [node.facts for tree in trees for node in tree if node.depth == 1]
    assert uppers == [["locked 1", "hits 1"], ["locked 1"]]


def test_a_divergence_in_the_final_drain_names_the_step() -> None:
    found = explained([CoreInsert([1, 2])], mutants.wrong_free_order)
    assert found.op_index is None
    assert found.op == "the final drain, step 5 of 6: everything is evicted"
    assert found.call == "evict_device_leaf(node_id=0, is_write_back=False)"
    assert [op.index for op in found.ops] == [0]
    assert shown(found.sides[0].tree_before) == [(0, "root", ""), (1, "[1, 2]", "[1, 2]")]
    assert shown(found.sides[0].tree_after) == [(0, "root", "")]


def test_a_suspended_insert_hides_the_tree_and_nothing_else() -> None:
    config = Config(linker=True, write_through_threshold=2)
    steps = [CoreInsert([1, 2]), CoreInsert([1, 2, 3], suspend=True)]
    found = explained(steps, mutants.leaked_slots, config=config)
    assert found.op_index == 1
    assert [side.tree_after for side in found.sides] == [None, None]
    assert shown(found.sides[0].tree_before) == [(0, "root", ""), (1, "[1, 2]", "[1, 2]")]


def test_a_side_that_cant_be_inspected_shows_what_the_contract_tells() -> None:
    settings = Settings(tree_every=1, inspect=False)
    steps = [CoreInsert([1, 2]), CoreInsert([1, 2, 3]), CoreInsert([1, 2, 4]), Evict(9)]
    found = explained(steps, mutants.wrong_free_order, settings=settings)
    assert shown(found.sides[0].tree_before) == [
        (0, "root", ""),
        (1, "units 0 to 1", "[1, 2]"),
        (2, "units 2 to 2", "[5]"),
        (2, "units 2 to 2", "[8]"),
    ]


def test_a_soft_difference_is_explained_though_the_case_goes_on() -> None:
    steps = [CoreInsert([1], rotation_base=3), Ask("rotation", ["live:0"]), Evict(1)]
    found = explained(steps, no_phase)
    assert found.is_soft
    assert (found.op_index, found.rule) == (1, "NODE-9")
    assert found.call == "rotation_phase_of(node_id=0)"
    assert differing(found) == {"result": ("3", "None")}


def test_events_are_told_one_by_one() -> None:
    config = Config(events=True)
    found = explained(
        [CoreInsert([1]), CoreInsert([1, 2]), Evict(9)], mutants.lost_event, config=config
    )
    assert any(row.differs for row in found.rows)
    assert found.rule is not None
    assert found.rule.startswith("EVT")


# --- Findings, refusals and failures ------------------------------------------------------


def test_a_fault_that_both_sides_share_is_told_as_a_finding_of_both() -> None:
    shared = Lockstep(
        {name: LocalClient(name, mutants.side(mutants.leaked_slots)) for name in PAIR}, [PAIR]
    )
    steps: list[AnyOp] = [CoreInsert([1, 2]), CoreInsert([1, 2])]
    found = explain(new_trace(CONFIG, steps), shared, PAIR, settings=WATCHED)
    assert found is not None
    assert (found.kind, found.guilty, found.call) == ("oracle", None, None)
    assert [row.left == row.right for row in found.rows] == [True] * len(found.rows)
    assert all(side.findings for side in found.sides)
    assert found.rule == "INS-31"


def test_a_finding_of_one_side_stands_in_its_column() -> None:
    steps = [CoreInsert([1]), CoreInsert([2]), Lock("live:0"), Unlock(0), STALE_UNLOCK]
    found = explained(steps, mutants.refusal_that_changes)
    sound, spoilt = found.sides
    assert sound.findings == []
    assert "refusal: a refused dec_lock_ref changed the tree" in spoilt.findings
    assert found.guilty == "rust"


STALE_UNLOCK = Unlock(0, receipt="released")
"""A release of what was released already."""


def test_a_refused_configuration_is_told_without_ops() -> None:
    class Picky:
        """A core that wants small pages."""

        def __init__(self, params: Any) -> None:
            raise ValueError(f"pages of {params.page_size}")

    picky: Any = Picky
    pair = Lockstep(
        {
            "python": LocalClient("python", mutants.side()),
            "rust": LocalClient("rust", LocalSide(picky)),
        },
        [PAIR],
    )
    found = explain(new_trace(Config(page_size=4), list(STEPS)), pair, PAIR, settings=WATCHED)
    assert found is not None
    assert (found.kind, found.op, found.ops) == ("refused", "the core is built", [])
    assert differing(found) == {"built": ("ok", "raises ValueError")}
    assert found.rule == "CFG-1"
    assert [side.tree_after for side in found.sides] == [None, None]


class FailingClient(LocalClient):
    """A side whose worker fails when it comes to a reset."""

    def __init__(self, name: str, failure: FailureKind) -> None:
        super().__init__(name, mutants.side())
        self.failure = failure
        self.is_due = False
        self.opened = 0

    def open(self, config: Config, settings: Settings) -> str | None:
        self.opened += 1
        return super().open(config, settings)

    def submit(self, batch: Sequence[AnyOp] | None) -> None:
        self.is_due = any(isinstance(op, Reset) for op in batch or [])
        super().submit(batch)

    def collect(self) -> Batch:
        if self.is_due:
            raise WorkerFailure(self.failure, f"the worker failed: {self.failure}")
        return super().collect()


def failed(failure: FailureKind, runs: int) -> Explanation:
    """How a side that fails in `runs` runs is explained."""
    failing = FailingClient("rust", failure)
    clients = {"python": LocalClient("python", mutants.side()), "rust": failing}
    steps: list[AnyOp] = [CoreInsert([1]), CoreInsert([2]), Reset(), Evict(1)]
    found = explain(new_trace(CONFIG, steps), Lockstep(clients, [PAIR]), PAIR, settings=WATCHED)
    assert found is not None
    assert failing.opened == runs
    return found


def test_a_crash_is_traced_to_the_op_that_it_came_at() -> None:
    found = failed("crash", runs=2)
    assert (found.kind, found.guilty, found.rule) == ("crash", "rust", "BND-34")
    assert (found.op_index, found.op) == (2, "reset()")
    assert differing(found) == {"worker": ("went on", "the worker failed: crash")}
    sound, dead = found.sides
    assert shown(sound.tree_after) == [(0, "root", "")]
    assert dead.tree_after is None
    assert len(shown(dead.tree_before)) == 3


@pytest.mark.parametrize("failure", ["hang", "memory"])
def test_a_side_that_hangs_or_eats_memory_is_not_run_again(failure: FailureKind) -> None:
    found = failed(failure, runs=1)
    assert (found.kind, found.guilty) == (failure, "rust")
    assert found.op_index == 3
    sound, failing = found.sides
    assert sound.tree_after is not None
    assert (failing.tree_before, failing.tree_after, failing.calls) == (None, None, [])


# --- Which divergence, and how much of the trace ------------------------------------------


def two_kinds() -> Trace:
    """A trace that shows a soft difference first and a hard one later."""
    steps = [CoreInsert([1, 2], rotation_base=3), Ask("rotation", ["live:0"]), Evict(9)]
    return new_trace(CONFIG, steps)


def no_phase(core: Any) -> None:
    """Its rotation phases are missing."""
    core.rotation_phase_of = lambda node: None


SOFT = "difference:ask:calls[].rotation_phase_of"


@pytest.mark.parametrize(
    ("asked", "named", "told"),
    [
        (None, None, WRONG_ORDER),
        (SOFT, None, SOFT),
        (WRONG_ORDER, None, WRONG_ORDER),
        (None, SOFT, SOFT),
        (WRONG_ORDER, SOFT, WRONG_ORDER),
        ("of another kind", None, WRONG_ORDER),
    ],
)
def test_the_wanted_kind_is_explained_else_a_hard_one(
    asked: str | None, named: str | None, told: str
) -> None:
    trace = two_kinds()
    trace.header.signature = named
    pair = spoilt_pair(no_phase, mutants.wrong_free_order)
    found = explain(trace, pair, PAIR, asked, settings=WATCHED)
    assert found is not None
    assert found.signature == told


def test_the_rule_of_the_header_counts_for_its_kind_alone() -> None:
    mutated = mutants.wrong_free_order
    assert explained(STEPS, mutated, rule="INS-1", signature=WRONG_ORDER).rule == "INS-1"
    assert explained(STEPS, mutated, rule="INS-1", signature="another").rule == "EVD-21"


def test_of_a_long_trace_the_last_and_the_concerned_ops_are_kept() -> None:
    steps: list[AnyOp] = [CoreInsert([1, 2]), *[Touch([9])] * 200, Evict(9)]
    found = explained(steps, mutants.wrong_free_order)
    kept = [op.index for op in found.ops]
    assert kept == [0, *range(202 - LAST_OPS_KEPT, 202)]
    steps = [*[CoreInsert([1, 2])] * 200, Evict(9)]
    found = explained(steps, mutants.wrong_free_order)
    assert [op.index for op in found.ops] == list(range(201 - OPS_KEPT, 201))


def test_other_pairs_of_the_lockstep_are_left_alone() -> None:
    clients = {name: LocalClient(name, mutants.side()) for name in ("python", "third")}
    clients["rust"] = LocalClient("rust", mutants.side(mutants.wrong_free_order))
    lockstep = Lockstep(clients, [("python", "third"), PAIR])
    found = explain(new_trace(CONFIG, list(STEPS)), lockstep, PAIR, settings=WATCHED)
    assert found is not None
    assert found.pair == PAIR


def test_explaining_is_repeatable_and_what_it_tells_survives_a_file() -> None:
    once, again = (
        explained(STEPS, mutants.wrong_free_order),
        explained(STEPS, mutants.wrong_free_order),
    )
    assert once == again
    assert msgspec.json.decode(msgspec.json.encode(once), type=Explanation) == once


@pytest.mark.parametrize("name", list(DRILLS)[::25])
def test_every_divergence_of_a_drill_has_a_rule_and_a_row_that_differs(name: str) -> None:
    for seed in (0, 1):
        config, steps = generate_case(seed, profile_named("full"), hostile=seed == 0)
        trace = new_trace(config, list(steps)[:60])
        found = explain(trace, spoilt_pair(DRILLS[name].mutate), PAIR, settings=WATCHED)
        if found is not None:
            assert found.rule_text
            assert any(row.differs for row in found.rows) or found.kind == "oracle"
            assert len(found.sides) == 2
