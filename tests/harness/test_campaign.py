"""Campaigns: budgets, kinds and their counts, saved traces, and what listeners hear."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.harness import mutants
from treedrift.harness.campaign import (
    Budget,
    Campaign,
    Case,
    Listener,
    Start,
    numbered,
    save,
)
from treedrift.harness.compare import Divergence
from treedrift.harness.config import Config
from treedrift.harness.events import Checkpoint, Event, Found, Progress
from treedrift.harness.lockstep import CaseResult, LocalClient, Lockstep
from treedrift.harness.ops import CoreInsert, Evict
from treedrift.harness.side import Settings
from treedrift.harness.tally import Tally
from treedrift.harness.trace import TraceError, read_trace

PAIR = ("sound", "leaky")
SELDOM = Settings()
LEAK = [CoreInsert([1, 2, 3]), CoreInsert([1, 2, 3, 4]), Evict(2)]


def campaign(
    folder: Path | None = None,
    spoilt: bool = True,
    mutate: mutants.Mutation = mutants.leaked_slots,
    settings: Settings = SELDOM,
    listen: Listener | None = None,
    **options: Any,
) -> tuple[Campaign, list[Event]]:
    faults = [mutate] if spoilt else []
    sides = {"sound": mutants.side(), "leaky": mutants.side(*faults)}
    clients = {name: LocalClient(name, side) for name, side in sides.items()}
    heard: list[Event] = []
    return Campaign(
        Lockstep(clients, [PAIR]), settings, folder, listen or heard.append, **options
    ), heard


def cases(seeds: int) -> Iterator[Case]:
    for seed in range(seeds):
        yield Case(Config(policy="LRU" if seed % 2 else "mru"), list(LEAK), seed, number=seed)


# --- Budgets ------------------------------------------------------------------------------


def test_a_campaign_ends_with_its_cases() -> None:
    one, _ = campaign(spoilt=False)
    one.run(cases(3), Budget())
    assert (one.tally.cases, one.tally.op_count) == (3, 9)


def test_a_campaign_ends_with_the_case_that_spends_its_ops() -> None:
    one, _ = campaign(spoilt=False)
    one.run(cases(100), Budget(ops=4))
    assert (one.tally.cases, one.tally.op_count) == (2, 6)


def test_a_campaign_ends_with_the_case_that_spends_its_time() -> None:
    one, _ = campaign(spoilt=False)
    one.run(cases(100), Budget(seconds=0.0))
    assert one.tally.cases == 1


def test_either_limit_of_a_budget_spends_it() -> None:
    budget = Budget(ops=10, seconds=5.0)
    assert not budget.is_spent(9, 4.9)
    assert budget.is_spent(10, 0.0)
    assert budget.is_spent(0, 5.0)
    assert not Budget().is_spent(10**12, 1e9)


# --- Kinds --------------------------------------------------------------------------------


def test_one_kind_is_kept_once_and_counted_every_time(tmp_path: Path) -> None:
    one, heard = campaign(tmp_path)
    one.run(cases(3), Budget())
    ((key, kept),) = one.kinds.items()
    assert key == (PAIR, kept.signature)
    found = [event for event in heard if isinstance(event, Found)]
    assert [event.is_new for event in found] == [True, False, False]
    assert [event.divergence.signature for event in found] == [kept.signature] * 3
    assert [path.name for path in tmp_path.iterdir()] == [Path(str(kept.file)).name]


def test_a_listener_hears_of_a_find_before_of_the_progress_that_counts_it() -> None:
    one, heard = campaign()
    one.run(cases(1), Budget())
    within, found, after, last = heard
    assert isinstance(last, Checkpoint)
    assert isinstance(within, Progress)
    assert (within.cases, within.findings) == (0, 0)
    assert isinstance(found, Found)
    assert found.seed == 0
    assert isinstance(after, Progress)
    assert (after.cases, after.findings) == (1, 1)


def test_a_checkpoint_tells_where_a_job_goes_on(tmp_path: Path) -> None:
    one, heard = campaign()
    one.run(cases(3), Budget())
    last = heard[-1]
    assert isinstance(last, Checkpoint)
    assert (last.next_case, last.tally.cases) == (3, 3)


def test_a_job_that_goes_on_counts_from_there_and_tells_nothing_twice(tmp_path: Path) -> None:
    before, _ = campaign()
    before.run(cases(1), Budget())
    (kind,) = before.kinds
    start = Start(next_case=1, tally=Tally(op_count=3, cases=1), kinds=[kind], told=[(2, *kind)])
    again, heard = campaign(tmp_path, start=start)
    again.run(islice(cases(4), 1, None), Budget())
    found = [event for event in heard if isinstance(event, Found)]
    assert [(event.case, event.is_new) for event in found] == [(1, False), (3, False)]
    assert (again.tally.cases, again.tally.op_count) == (4, 12)
    assert not list(tmp_path.iterdir())


def test_the_values_of_a_kind_are_told_once() -> None:
    one, heard = campaign()
    one.run(cases(3), Budget())
    found = [event.divergence for event in heard if isinstance(event, Found)]
    assert [(each.left, each.right) != (None, None) for each in found] == [True, False, False]


def test_a_job_that_was_done_runs_no_case_more() -> None:
    start = Start(next_case=2, tally=Tally(op_count=6, cases=2))
    again, heard = campaign(start=start)
    again.run(islice(cases(4), 2, None), Budget(ops=6))
    assert (again.tally.cases, again.tally.op_count) == (2, 6)
    assert [type(event) for event in heard] == [Checkpoint]


def test_an_interruption_leaves_a_case_counted_and_done_or_neither() -> None:
    """Wherever Ctrl-C strikes, the last checkpoint counts just the cases below its next one."""
    one, heard = campaign()
    one.run(cases(3), Budget())
    for strike in range(len(heard)):
        after: list[Event] = []

        def listen(event: Event, strike: int = strike, after: list[Event] = after) -> None:
            after.append(event)
            if len(after) == strike + 1:
                raise KeyboardInterrupt

        again, _ = campaign(listen=listen)
        with pytest.raises(KeyboardInterrupt):
            again.run(cases(3), Budget())
        last = after[-1]
        assert isinstance(last, Checkpoint)
        assert last.next_case == last.tally.cases


def test_a_kind_is_what_a_replay_of_its_trace_shows() -> None:
    seldom = Settings(tree_every=10**6)
    fault = {"mutate": mutants.lost_hit_count, "settings": seldom}
    raw, _ = campaign(**fault)
    close, _ = campaign(**fault, closely=lambda pair, config: Settings(tree_every=1, inspect=True))
    split = [CoreInsert([1, 2, 3])] * 3 + [CoreInsert([1, 2, 4])] * 3 + [CoreInsert([9])] * 4
    for one in (raw, close):
        one.run([Case(Config(policy="lfu"), split)], Budget())
    (before,), (after,) = raw.kinds.values(), close.kinds.values()
    assert before.op_kind == "drain"
    assert (after.op_kind, after.op_index) == ("core_insert", 3)


def test_a_campaign_without_a_folder_writes_nothing() -> None:
    one, _ = campaign()
    one.run(cases(1), Budget())
    assert [kept.file for kept in one.kinds.values()] == [None]


# --- Saved traces -------------------------------------------------------------------------


def test_a_saved_trace_ends_with_the_op_where_the_sides_part(tmp_path: Path) -> None:
    one, _ = campaign(tmp_path)
    one.run(cases(1), Budget())
    (kept,) = one.kinds.values()
    assert kept.op_index == 1
    trace = read_trace(str(kept.file))
    assert trace.ops == LEAK[:2]
    assert (trace.header.pair, trace.header.seed) == (PAIR, 0)
    assert kept.where in trace.header.note


def test_the_shortest_trace_of_a_kind_is_kept(tmp_path: Path) -> None:
    one, _ = campaign(tmp_path)
    long, short = [CoreInsert([9]), *LEAK], list(LEAK)
    traces = [long, short, long]
    one.run([Case(Config(), steps, n, number=n) for n, steps in enumerate(traces)], Budget())
    (kept,) = one.kinds.values()
    (path,) = tmp_path.iterdir()
    assert str(path) == kept.file
    assert (read_trace(path).ops, read_trace(path).header.seed) == (LEAK[:2], 1)


def test_a_saved_trace_diverges_again_with_the_same_signature(tmp_path: Path) -> None:
    one, _ = campaign(tmp_path)
    one.run(cases(1), Budget())
    (kept,) = one.kinds.values()
    trace = read_trace(str(kept.file))
    again, _ = campaign()
    again.run([Case(trace.header.config, trace.ops)], Budget())
    assert [found.signature for found in again.kinds.values()] == [kept.signature]


def divergence(signature: str = "a:b", op_index: int | None = None) -> Divergence:
    return Divergence(
        pair=PAIR, kind="crash", op_index=op_index, op_kind="x", where="y", signature=signature
    )


def test_a_divergence_in_the_drain_saves_the_whole_trace(tmp_path: Path) -> None:
    assert read_trace(save(tmp_path, Case(Config(), list(LEAK), 4), divergence())).ops == LEAK


@pytest.mark.parametrize("signature", ["a/../../b", "x" * 500, "ä ö|[]:#", "-"])
def test_a_saved_trace_has_a_plain_name_in_its_folder(tmp_path: Path, signature: str) -> None:
    path = save(tmp_path / "new", Case(Config(), list(LEAK), 4), divergence(signature))
    assert path.parent == tmp_path / "new"
    assert path.name.isascii()
    assert len(path.name) < 200


def test_a_place_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("keep me")
    with pytest.raises((TraceError, OSError), match="file"):
        save(tmp_path / "file", Case(Config(), list(LEAK), 4), divergence())
    assert (tmp_path / "file").read_text() == "keep me"


# --- Tallies ------------------------------------------------------------------------------


def test_a_tally_counts_what_ran() -> None:
    one, _ = campaign(spoilt=False)
    one.run(cases(2), Budget())
    assert one.tally.op_kinds == {"core_insert": 4, "evict": 2}
    assert one.tally.policies == {"mru": 1, "lru": 1}
    assert one.tally.behaviours["insert.overlap"] == 2
    assert set(one.tally.core_seconds) == set(PAIR)


def test_ops_behind_a_divergence_in_the_same_batch_count_as_run() -> None:
    one, _ = campaign()
    one.run(cases(1), Budget())
    assert one.tally.op_count == 3


def test_a_refused_configuration_counts_as_refused() -> None:
    one, _ = campaign(spoilt=False)
    one.run([Case(Config(policy="none such"), list(LEAK))], Budget())
    assert (one.tally.cases, one.tally.refused, one.tally.op_kinds) == (1, 1, {})


def test_tallies_add_up() -> None:
    total, part = Tally.empty(), Tally(op_count=2, cases=1, op_kinds={"evict": 2})
    total.add(part)
    total.add(part)
    assert (total.op_count, total.cases, total.op_kinds) == (4, 2, {"evict": 4})
    assert part.op_kinds == {"evict": 2}


def test_counting_a_case_does_not_share_mappings_between_tallies() -> None:
    first, second = Tally.empty(), Tally.empty()
    first.count("lru", list(LEAK), CaseResult(op_count=3, figures={}))
    assert first.op_kinds
    assert not second.op_kinds


def test_jobs_share_the_cases_of_a_seed_out_among_them() -> None:
    alone = list(islice(numbered(3), 9))
    jobs = [list(islice(numbered(3, job, 3), 3)) for job in range(3)]
    assert sorted(seed for job in jobs for seed in job) == alone
    assert len(set(alone)) == 9
