"""Every candidate is a trace that runs, and every step that is taken makes the trace simpler."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness import mutants
from tests.harness.minimize.failing_traces import divergences, found_by_chance
from tests.harness.spoilt_pair import PAIR, spoilt_pair
from treedrift.harness import ops
from treedrift.harness.config import Config
from treedrift.harness.minimize import configuration, keys, lowering, operands
from treedrift.harness.minimize.base import Base
from treedrift.harness.minimize.draft import Candidate, Draft, size_of
from treedrift.harness.minimize.parallel import Alone
from treedrift.harness.minimize.search import PASSES, Search
from treedrift.harness.minimize.trial import Evaluation, Judge
from treedrift.harness.ops import AnyOp, Arrive, CoreInsert, CoreMatch, Finish, Lock, Prefill
from treedrift.harness.trace import new_trace, validate
from treedrift.models.profiles import profile_named
from treedrift.models.swarm import generate_case


def drafts(candidates: Iterator[Candidate]) -> list[Draft]:
    return [candidate.draft for candidate in candidates]


@pytest.mark.parametrize(
    ("profile", "seed", "length"),
    [("full", 3, 7), ("full", 12, 7), ("hybrid", 3, 7), ("windows", 4, 3)],
)
def test_every_candidate_of_every_pass_is_a_valid_trace_on_which_sound_cores_agree(
    profile: str, seed: int, length: int
) -> None:
    hostile = seed % 3 == 0
    config, steps = generate_case(seed, profile_named(profile), hostile=hostile, length=length)
    base, lockstep = Base(Draft(config, steps)), spoilt_pair()
    for _, one in PASSES:
        for candidate in one(base):
            draft = candidate.draft
            assert len(candidate.origins) == len(draft.ops)
            validate(new_trace(draft.config, draft.ops))
            assert divergences(lockstep, draft.config, draft.ops) == []


class Watched(Alone):
    """Remembers the steps that were taken."""

    steps: list[tuple[Draft, Draft]]

    def stream(
        self, base: Draft, candidates: Iterator[Candidate], deadline: float
    ) -> Iterator[Evaluation]:
        for evaluation in super().stream(base, candidates, deadline):
            if evaluation.reached is not None:
                self.steps.append((base, evaluation.reached))
            yield evaluation


def test_every_step_makes_the_trace_simpler_and_starts_where_the_last_one_ended() -> None:
    trace = found_by_chance(mutants.lost_hit_count)
    lockstep = spoilt_pair(mutants.lost_hit_count)
    (kept, *_) = divergences(lockstep, trace.header.config, trace.ops)
    watched = Watched(Judge(lockstep, PAIR, kept))
    watched.steps = []
    first = Draft(trace.header.config, trace.ops)
    search = Search(watched, first, deadline=float("inf"))
    assert search.run()
    assert len(watched.steps) > 5
    expected = first
    for before, after in watched.steps:
        assert before == expected
        assert size_of(after) < size_of(before)
        expected = after
    assert search.best == expected


ORDER: list[tuple[str, Draft, Draft]] = [
    ("fewer ops", Draft(Config(policy="lfu"), []), Draft(Config(), [CoreMatch([1])])),
    ("simpler kinds", Draft(Config(), [CoreMatch([9, 9])]), Draft(Config(), [Arrive([1])])),
    (
        "default settings",
        Draft(Config(), [CoreMatch([1, 2])]),
        Draft(Config(events=True), [CoreMatch([1])]),
    ),
    (
        "smaller pages",
        Draft(Config(capacity=8), [CoreMatch([1, 2])]),
        Draft(Config(page_size=2, capacity=4), [CoreMatch([1])]),
    ),
    (
        "smaller pools",
        Draft(Config(capacity=3), [CoreMatch([1, 2])]),
        Draft(Config(capacity=4), [CoreMatch([1])]),
    ),
    ("fewer tokens", Draft(Config(), [CoreMatch([9])]), Draft(Config(), [CoreMatch([1, 1])])),
    (
        "operands at their default",
        Draft(Config(), [CoreMatch([9])]),
        Draft(Config(), [CoreMatch([1], limit=0)]),
    ),
    ("smaller numbers", Draft(Config(), [CoreMatch([2])]), Draft(Config(), [CoreMatch([3])])),
    (
        "one is the first token",
        Draft(Config(), [CoreMatch([1])]),
        Draft(Config(), [CoreMatch([0])]),
    ),
    (
        "the root before a live node",
        Draft(Config(), [Lock("root")]),
        Draft(Config(), [Lock("live:0")]),
    ),
]


@pytest.mark.parametrize(
    ("simpler", "other"), [row[1:] for row in ORDER], ids=[r[0] for r in ORDER]
)
def test_the_simpler_draft_has_the_smaller_size(simpler: Draft, other: Draft) -> None:
    assert size_of(simpler) < size_of(other)


def test_a_shared_prefix_is_cut_in_all_keys_at_once() -> None:
    base = Base(Draft(Config(), [CoreInsert([1, 2, 3, 4]), CoreMatch([1, 2, 3, 7])]))
    made = drafts(keys.shorten_segments(base))
    assert Draft(Config(), [CoreInsert([4]), CoreMatch([7])]) in made
    assert Draft(Config(), [CoreInsert([1, 2, 4]), CoreMatch([1, 2, 7])]) in made


def test_renamed_keys_part_where_they_parted_before() -> None:
    steps: list[AnyOp] = [CoreInsert([5, 6, 7]), CoreInsert([5, 6, 9, 9]), CoreMatch([8])]
    (by_branch, by_value) = drafts(keys.rename(Base(Draft(Config(), steps))))
    assert by_branch.ops == [CoreInsert([1, 1, 1]), CoreInsert([1, 1, 2, 2]), CoreMatch([2])]
    assert by_value.ops == [CoreInsert([1, 2, 3]), CoreInsert([1, 2, 4, 4]), CoreMatch([5])]


def test_a_smaller_page_size_comes_with_a_token_a_page_and_a_smaller_pool() -> None:
    config = Config(page_size=4, capacity=32, row_length=16)
    steps: list[AnyOp] = [CoreInsert([1, 2, 3, 4, 5, 6, 7, 8]), ops.Evict(8)]
    wanted = Draft(
        Config(page_size=1, capacity=8, row_length=4), [CoreInsert([1, 2]), ops.Evict(2)]
    )
    assert wanted in drafts(configuration.configuration(Base(Draft(config, steps))))


def test_a_tree_loses_components_together_with_their_settings() -> None:
    config = Config(
        components=("full", "swa", "mamba"), window=4, window_interval=2, states=3, state_cap=1
    )
    made = drafts(configuration.configuration(Base(Draft(config, [CoreMatch([1])]))))
    found = {draft.config.components: draft.config for draft in reversed(made)}
    assert found["full",] == Config()
    shrunk = [draft.config for draft in made]
    assert Config(components=("full", "swa"), window=4, window_interval=2) in shrunk
    assert Config(components=("full", "mamba"), states=3, state_cap=1) in shrunk


def test_lengths_of_windows_shrink_with_the_pages() -> None:
    config = Config(
        components=("full", "swa"), window=8, window_capacity=16, page_size=4, capacity=32
    )
    steps: list[AnyOp] = [CoreInsert([1, 2, 3, 4, 5, 6, 7, 8], swa_evicted=4), ops.Evict(0, 8)]
    wanted = Draft(
        Config(components=("full", "swa"), window=2, window_capacity=4, capacity=8, row_length=16),
        [CoreInsert([1, 2], swa_evicted=1), ops.Evict(0, 2)],
    )
    assert wanted in drafts(configuration.configuration(Base(Draft(config, steps))))


def test_the_story_of_a_request_is_told_as_one_insert_of_its_tokens() -> None:
    steps: list[AnyOp] = [
        Arrive([1, 2]),
        Prefill(0),
        ops.Decode(0, [3]),
        Finish(0),
        CoreMatch([1, 2, 3]),
    ]
    wanted = Draft(Config(), [CoreInsert([1, 2, 3]), CoreMatch([1, 2, 3])])
    assert wanted in drafts(lowering.stories(Base(Draft(Config(), steps))))


def test_equal_operands_of_several_ops_are_lowered_together() -> None:
    space = ops.Namespace("a")
    steps: list[AnyOp] = [CoreInsert([1], space), CoreMatch([1], space)]
    wanted = Draft(Config(), [CoreInsert([1]), CoreMatch([1])])
    assert wanted in drafts(operands.together(Base(Draft(Config(), steps))))
