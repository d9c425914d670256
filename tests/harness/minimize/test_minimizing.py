"""What shrinking promises: a trace that replays, keeps its kind, and has no smaller neighbour."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from tests.harness import mutants
from tests.harness.minimize.failing_traces import divergences, found_by_chance, signatures
from tests.harness.spoilt_pair import CONFIG, PAIR, STEPS, WRONG_ORDER, spoilt_pair
from treedrift.harness.config import Config
from treedrift.harness.minimize import Minimized, minimize, minimizer
from treedrift.harness.minimize.minimizer import LOOKS
from treedrift.harness.ops import CoreInsert, CoreMatch
from treedrift.harness.trace import Trace, dump_trace, new_trace, read_trace, write_trace
from treedrift.models.drills.matching import off_by_one_page
from treedrift.models.drills.reading import truth_as_a_number
from treedrift.models.drills.refusals import error_of_another_class
from treedrift.models.drills.splits import moved_child

ENOUGH_SECONDS = 600.0

FAULTS = [
    mutants.lost_hit_count,
    off_by_one_page,
    moved_child,
    mutants.reversed_events,
    mutants.unhealthy,
]


def shrunk(trace: Trace, *faults: mutants.Mutation, **options: Any) -> Minimized:
    options = {"budget_seconds": ENOUGH_SECONDS, "lockstep": spoilt_pair(*faults), **options}
    return minimize(trace, PAIR, **options)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_shrunk_trace_keeps_its_kind_and_no_single_op_can_go(fault: mutants.Mutation) -> None:
    trace = found_by_chance(fault)
    result = shrunk(trace, fault)
    config, steps = result.trace.header.config, result.trace.ops
    lockstep = spoilt_pair(fault)
    assert result.verdict == "DIVERGES"
    assert result.is_minimal
    assert len(steps) <= min(8, len(trace.ops))
    assert result.signature == result.replayed
    assert result.signature in signatures(lockstep, config, steps)
    for number in range(len(steps)):
        rest = steps[:number] + steps[number + 1 :]
        assert result.signature not in signatures(lockstep, config, rest), number


def test_a_fault_that_hostile_ops_alone_show_is_shrunk_to_lock_and_misused_release() -> None:
    fault = error_of_another_class
    result = shrunk(found_by_chance(fault, hostile=True), fault)
    assert len(result.trace.ops) <= 3
    assert result.trace.ops[-1].__struct_config__.tag == "unlock"


def test_the_kind_that_is_asked_for_is_kept_even_if_another_one_shows_too() -> None:
    both = (mutants.wrong_free_order, truth_as_a_number)
    trace = new_trace(CONFIG, STEPS)
    assert shrunk(trace, *both).signature == "difference:core_insert:tree.node.is_root"
    alone = shrunk(trace, mutants.wrong_free_order, signature=WRONG_ORDER)
    assert alone.signature == WRONG_ORDER
    assert alone.verdict == "DIVERGES"


def test_another_kind_than_the_one_asked_for_is_shrunk_and_said_to_have_slipped() -> None:
    said: list[str] = []
    wanted = "difference:evict:sizes.free"
    result = shrunk(
        new_trace(CONFIG, STEPS), mutants.wrong_free_order, signature=wanted, tell=said.append
    )
    assert result.verdict == "SLIPPED"
    assert result.signature == result.trace.header.signature == WRONG_ORDER
    assert said == [f"{wanted} does not show; {WRONG_ORDER} does"]


def test_candidates_that_fail_in_another_way_are_counted_and_shown() -> None:
    fault = mutants.leaked_slots
    result = shrunk(found_by_chance(fault), fault)
    assert sum(result.slipped.values()) > 0
    assert result.signature not in result.slipped
    assert result.slipped_traces
    for other in result.slipped_traces:
        shown = signatures(spoilt_pair(fault), other.header.config, other.ops)
        assert other.header.signature in shown


def test_the_header_says_what_the_trace_shows_and_where_it_came_from(tmp_path: Path) -> None:
    trace = new_trace(CONFIG, STEPS, source="swarm", seed=7, profile="full")
    result = shrunk(trace, mutants.wrong_free_order)
    header = result.trace.header
    assert (header.pair, header.expect, header.signature) == (PAIR, "diverges", WRONG_ORDER)
    assert (header.source, header.seed, header.profile) == ("swarm", 7, "full")
    assert header.note.startswith("difference at ")
    write_trace(tmp_path / "shrunk.jsonl", result.trace)
    assert read_trace(tmp_path / "shrunk.jsonl") == result.trace


def test_the_neighbours_that_were_tried_are_counted_by_pass() -> None:
    result = shrunk(new_trace(CONFIG, STEPS), mutants.wrong_free_order)
    assert result.tried["removals"] == len(result.trace.ops)
    assert result.tried["config"] > 0
    assert result.ops_before == len(STEPS)


def test_cores_that_agree_leave_the_trace_as_it_is() -> None:
    trace = new_trace(CONFIG, STEPS)
    result = shrunk(trace)
    assert (result.verdict, result.signature, result.trials) == ("AGREES", None, LOOKS)
    assert result.trace is trace


def test_a_trace_that_shows_something_else_each_time_is_called_flaky() -> None:
    turns = cycle([True, False])

    def sometimes(core: Any) -> None:
        if next(turns):
            mutants.wrong_free_order(core)

    trace = new_trace(CONFIG, STEPS)
    result = shrunk(trace, sometimes)
    assert (result.verdict, result.is_minimal) == ("FLAKY", False)
    assert result.trace is trace


def test_a_spent_budget_stops_the_search_and_the_result_says_so() -> None:
    trace = found_by_chance(mutants.lost_hit_count)
    result = shrunk(trace, mutants.lost_hit_count, budget_seconds=0.0)
    assert not result.is_minimal
    assert result.trials == LOOKS
    assert result.tried == {}
    assert result.trace.ops == trace.ops
    assert result.replayed == result.signature


def test_a_configuration_that_one_core_refuses_is_shrunk_without_its_ops() -> None:
    def refuses_wide_pages(core: Any) -> None:
        if core.page_size > 1:
            raise ValueError

    trace = new_trace(Config(page_size=4, policy="mru", events=True), STEPS)
    result = shrunk(trace, refuses_wide_pages)
    assert (result.verdict, result.is_minimal) == ("DIVERGES", True)
    assert result.signature == "refused:open:None|ValueError"
    assert result.trace.ops == []
    assert result.trace.header.config.policy == "lru"
    assert result.trace.header.config.page_size > 1


def test_time_counts_from_when_the_sides_are_up(monkeypatch: pytest.MonkeyPatch) -> None:
    lockstep, heard = spoilt_pair(mutants.wrong_free_order), list[str]()
    monkeypatch.setattr(lockstep, "start", lambda: heard.append("up"))
    monkeypatch.setattr(minimizer, "open_lockstep", lambda pairs: lockstep)
    monkeypatch.setattr(minimizer, "monotonic", lambda: heard.append("looked") or 0.0)
    minimize(new_trace(CONFIG, STEPS), PAIR, budget_seconds=0.0)
    assert heard[:2] == ["up", "looked"]


def test_what_comes_after_the_divergence_is_cut_before_anything_is_tried() -> None:
    steps = [*STEPS, CoreMatch([1]), CoreInsert([5])]
    result = shrunk(new_trace(CONFIG, steps), mutants.wrong_free_order, budget_seconds=0.0)
    assert result.trace.ops == STEPS


def test_a_difference_of_the_final_drain_is_shrunk_too() -> None:
    steps = [CoreInsert([1, 2]), CoreMatch([1, 2]), CoreInsert([3])]
    result = shrunk(new_trace(Config(), steps), mutants.wrong_free_order)
    assert result.signature is not None
    assert result.signature.startswith("difference:drain:")
    assert result.trace.ops == [CoreInsert([1, 1])]
    (found,) = divergences(
        spoilt_pair(mutants.wrong_free_order), result.trace.header.config, result.trace.ops
    )
    assert found.op_index is None


def test_pages_are_taken_down_together_with_tokens_and_pools() -> None:
    steps = [CoreInsert([*range(1, 9), *range(1, 9)]), CoreMatch([7] * 8)]
    trace = new_trace(Config(page_size=8, capacity=64, row_length=64), steps)
    result = shrunk(trace, mutants.wrong_free_order)
    assert result.trace.header.config == Config(capacity=2, rows=1, row_length=1)
    assert result.trace.ops == [CoreInsert([1, 1])]


def test_the_same_input_gives_the_same_bytes() -> None:
    trace = new_trace(CONFIG, STEPS)
    first, second = (shrunk(trace, mutants.wrong_free_order) for _ in range(2))
    assert dump_trace(first.trace) == dump_trace(second.trace)
    assert (first.trials, first.tried, first.slipped) == (
        second.trials,
        second.tried,
        second.slipped,
    )
