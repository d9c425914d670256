"""What was recorded in a server shrinks as well as what was generated."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.minimize.failing_traces import divergences
from tests.harness.recorded_traces import RECORDED, prompt_of, recorded
from tests.harness.spoilt_pair import PAIR, spoilt_pair
from treedrift.harness import ops
from treedrift.harness.config import Config
from treedrift.harness.minimize import configuration, minimize, operands, removals, runs
from treedrift.harness.minimize.base import Base
from treedrift.harness.minimize.draft import Candidate, Draft, size_of, without
from treedrift.harness.minimize.links import Follower, follow, relink
from treedrift.harness.minimize.search import PASSES
from treedrift.harness.minimize.sketch import RUN_OPS_MAX, Sketch, is_sketched
from treedrift.harness.opening import SMALL_POOL
from treedrift.harness.ops import AnyOp, Ask, CoreInsert, CoreMatch, Lock, Pin, Unlock
from treedrift.harness.tokens import key_tokens
from treedrift.harness.trace import new_trace, validate
from treedrift.models.drills.matching import limit_ignored
from treedrift.models.drills.recency import skipped_touch


def drafts(candidates: Iterator[Candidate]) -> list[Draft]:
    return [candidate.draft for candidate in candidates]


def base_of(*steps: AnyOp, config: Config | None = None) -> Base:
    return Base(Draft(config or Config(), list(steps)))


# --- The whole of it ------------------------------------------------------------------------


def test_a_late_failure_of_a_long_trace_shrinks_to_spelled_keys_without_answers() -> None:
    late = CoreMatch([], limit=1000, runs=prompt_of(99))
    trace = new_trace(RECORDED, [*recorded(100), late])
    result = minimize(trace, PAIR, lockstep=spoilt_pair(limit_ignored), budget_seconds=600.0)
    assert result.is_minimal
    assert result.trace.ops == [CoreInsert([1]), CoreMatch([1], limit=0)]
    assert result.trace.header.config == Config(capacity=1, rows=1, row_length=1)


def test_a_failure_that_needs_the_first_ops_of_a_long_trace_shrinks_to_a_few() -> None:
    trace = new_trace(RECORDED, [*recorded(60, pressure=False), ops.Evict(2**16)])
    result = minimize(trace, PAIR, lockstep=spoilt_pair(skipped_touch), budget_seconds=600.0)
    assert result.is_minimal
    assert len(result.trace.ops) <= 8
    assert all(not runs.runs_of(op) for op in result.trace.ops)


@pytest.mark.parametrize("config", [Config(page_size=2), Config(bigram=True, policy="lfu")])
def test_every_candidate_of_a_trace_with_runs_is_valid_and_sound_cores_agree(
    config: Config,
) -> None:
    steps = [
        CoreInsert([9], owned=2, runs=[(1, 4), (30, 3)], answer=4),
        Lock("answer:4"),
        CoreMatch([], limit=5, runs=[(9, 1), (1, 4)], answer=3),
        Ask("order", ["answer:3", "answer:4"]),
        Unlock(0),
    ]
    base, lockstep = base_of(*steps, config=config), spoilt_pair()
    for _, one in PASSES:
        for candidate in one(base):
            draft = candidate.draft
            validate(new_trace(draft.config, draft.ops))
            assert divergences(lockstep, draft.config, draft.ops) == []


# --- Following ------------------------------------------------------------------------------


def test_a_long_recorded_trace_is_followed_without_running_it_to_the_same_effect() -> None:
    steps = [*recorded(12), Pin("answer:21"), Pin(release=0), Lock("answer:22", host=True)]
    draft = Draft(RECORDED, steps)
    follower, sketch = Follower(draft), Sketch()
    for number, op in enumerate(steps):
        exact, sketched = dict(follower.references(op)), dict(sketch.references(op))
        assert sketched == exact, number
        follower.run(op, number)
        sketch.run(op, number)


def test_only_long_traces_that_name_nothing_by_its_place_are_followed_so() -> None:
    long = recorded(50)
    assert len(long) > RUN_OPS_MAX
    assert is_sketched(long)
    assert not is_sketched(long[:RUN_OPS_MAX])
    assert not is_sketched([*long, Lock("live:3")])
    assert not is_sketched([*long, ops.Finish(0)])
    assert not is_sketched([*long, ops.LinkerAck()])


def test_an_op_goes_with_the_op_whose_answer_it_names_and_receipts_move() -> None:
    steps: list[AnyOp] = [
        CoreInsert([1, 2], answer=5),
        CoreInsert([1, 3], answer=6),
        Lock("answer:5"),
        Lock("answer:6"),
        Unlock(1),
        Unlock(0),
        Ask("path", ["answer:5"]),
    ]
    rest = [steps[1], steps[3], Unlock(0)]
    for more in ([], recorded(50)):
        draft = Draft(RECORDED, [*steps, *more])
        links = follow(draft)
        assert links is not None
        assert links.is_sketched == bool(more)
        made = relink(draft, without(draft, {0}), links)
        assert made is not None
        assert made.ops[:3] == rest


def test_a_few_ops_are_kept_with_those_that_answered_what_they_name() -> None:
    steps = [*recorded(50), Lock("answer:7")]
    first = next(removals.few(Base(Draft(RECORDED, steps)))).draft
    maker = next(op for op in steps if getattr(op, "answer", None) == 7)
    assert first.ops == [maker, Lock("answer:7")]


def test_the_ops_whose_keys_are_nearest_to_the_last_one_are_kept() -> None:
    steps = [
        CoreInsert([], runs=[(1, 50), (900, 50)]),
        CoreInsert([], runs=[(1, 80)]),
        *[CoreInsert([], runs=[(5000 + number, 9)]) for number in range(20)],
        CoreMatch([1], runs=[(2, 60), (7000, 5)]),
    ]
    made = drafts(removals.few(base_of(*steps)))
    assert Draft(Config(), [steps[1], steps[-1]]) in made
    assert Draft(Config(), [steps[0], steps[1], *steps[-2:]]) in made


# --- Runs -----------------------------------------------------------------------------------


def test_spelled_tokens_are_simpler_than_the_run_of_them_and_other_names_than_an_answer() -> None:
    assert size_of(Draft(Config(), [CoreMatch([1, 2])])) < size_of(
        Draft(Config(), [CoreMatch([], runs=[(1, 2)])])
    )
    assert size_of(Draft(Config(), [CoreMatch([9, 8])])) < size_of(
        Draft(Config(), [CoreMatch([], runs=[(1, 2)])])
    )
    for other in ("root", "offered", "live:5", "request:2"):
        assert size_of(Draft(Config(), [Lock(other)])) < size_of(
            Draft(Config(), [Lock("answer:0")])
        )


def test_short_runs_are_spelled_with_small_tokens_that_stay_equal_where_they_were() -> None:
    base = base_of(CoreInsert([7], runs=[(100, 2), (50, 1)]), CoreMatch([7, 100], runs=[(50, 1)]))
    assert drafts(runs.spell_out(base))[:2] == [
        Draft(Config(), [CoreInsert([1, 2, 3, 4]), CoreMatch([1, 2, 4])]),
        Draft(Config(), [CoreInsert([7, 100, 101, 50]), CoreMatch([7, 100, 50])]),
    ]


def test_long_runs_get_small_tokens_and_are_joined_where_they_go_on() -> None:
    base = base_of(
        CoreInsert([], runs=[(9000, 5000), (100, 300)]), CoreMatch([], runs=[(9000, 400)])
    )
    (moved,) = drafts(runs.spell_out(base))
    assert moved.ops == [CoreInsert([], runs=[(1, 5300)]), CoreMatch([], runs=[(1, 400)])]


def test_shorter_runs_part_where_they_parted_before() -> None:
    base = base_of(CoreInsert([], runs=[(1, 64)]), CoreMatch([], runs=[(1, 32), (900, 32)]))
    halved = Draft(
        Config(), [CoreInsert([], runs=[(1, 32)]), CoreMatch([], runs=[(1, 16), (900, 16)])]
    )
    assert halved in drafts(runs.shorten_together(base))
    made = drafts(runs.shorten(base))
    cut = [CoreInsert([], runs=[(1, 16), (33, 32)]), CoreMatch([], runs=[(1, 16), (900, 32)])]
    assert Draft(Config(), cut) in made
    assert (
        Draft(Config(), [CoreInsert([], runs=[(33, 32)]), CoreMatch([], runs=[(900, 32)])]) in made
    )


def test_no_candidate_of_a_pass_over_runs_is_longer_than_what_it_is_made_of() -> None:
    draft = Draft(RECORDED, recorded(4))
    for one in (runs.shorten_together, runs.shorten, runs.spell_out):
        for candidate in one(Base(draft)):
            for op, before in zip(candidate.draft.ops, draft.ops, strict=True):
                if isinstance(op, (CoreInsert, CoreMatch)):
                    assert isinstance(before, (CoreInsert, CoreMatch))
                    assert len(key_tokens(op)) <= len(key_tokens(before))


def test_runs_shrink_with_their_pages() -> None:
    config = Config(page_size=16, capacity=2**10, row_length=2**10)
    base = base_of(CoreInsert([], runs=[(1, 320)], owned=160), ops.Evict(32), config=config)
    wanted = Draft(
        Config(page_size=1, capacity=64, row_length=64),
        [CoreInsert([], runs=[(1, 20)], owned=10), ops.Evict(2)],
    )
    assert wanted in drafts(configuration.configuration(base))


# --- Answers and pools ----------------------------------------------------------------------


def test_an_answer_that_no_op_names_is_not_kept_and_the_others_are_numbered_anew() -> None:
    base = base_of(
        CoreInsert([1], answer=70),
        CoreInsert([2], answer=71),
        CoreMatch([2], answer=90),
        Lock("answer:90"),
        Ask("order", ["answer:71", "live:0", "answer:90"]),
    )
    (tidied,) = drafts(operands.answers(base))
    assert tidied.ops == [
        CoreInsert([1]),
        CoreInsert([2], answer=0),
        CoreMatch([2], answer=1),
        Lock("answer:1"),
        Ask("order", ["answer:0", "live:0", "answer:1"]),
    ]
    assert list(operands.answers(base_of(CoreMatch([1]), Lock("live:0")))) == []


@pytest.mark.parametrize("named", ["root", "offered", "live:0", "live:3"])
def test_a_node_is_named_in_a_simpler_way_than_by_its_answer(named: str) -> None:
    steps = [CoreInsert([1], answer=0), Lock("answer:0")]
    assert Draft(Config(), [steps[0], Lock(named)]) in drafts(operands.each(base_of(*steps)))


def test_a_pool_that_can_not_be_small_is_halved_towards_its_least_size() -> None:
    made = drafts(configuration.configuration(base_of(config=Config(capacity=2**17))))
    sizes = [draft.config.capacity for draft in made]
    assert {SMALL_POOL + 1, 2**16, 2**16 + 2**15, 2**17 - 1} <= set(sizes)
    assert len(sizes) < 100
