"""Oracles see a fault that both sides of a pair share, which no comparison can."""

from __future__ import annotations

import copy

import pytest

from tests.harness import mutants
from treedrift.backends.contract import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    StorageMedium,
)
from treedrift.harness.config import Config
from treedrift.harness.lockstep import CaseResult, LocalClient, Lockstep
from treedrift.harness.ops import (
    AnyOp,
    Arrive,
    CoreInsert,
    CoreMatch,
    DrainEvents,
    Evict,
    Finish,
    Lock,
    Prefill,
    Reset,
    Unlock,
)
from treedrift.harness.oracles import EventIndex, page_digest
from treedrift.harness.side import Settings
from treedrift.models.drills.events import lost_stored_event
from treedrift.models.drills.locks import evicts_what_is_locked
from treedrift.models.drills.splits import double_owner
from treedrift.models.drills.walks import leak_on_evict, never_evicts

EVENTS = Config(events=True)
INSERTS: list[AnyOp] = [CoreInsert([1, 2, 3, 4]), CoreInsert([1, 2, 5, 6])]


def run_twice(mutation: mutants.Mutation, config: Config, trace: list[AnyOp]) -> CaseResult:
    """One case on two cores that share a fault."""
    sides = {name: mutants.side(mutation) for name in ("a", "b")}
    clients = {name: LocalClient(name, side) for name, side in sides.items()}
    return Lockstep(clients, [("a", "b")]).run(config, trace, Settings(tree_every=1, inspect=True))


SHARED: list[tuple[mutants.Mutation, Config, list[AnyOp], str]] = [
    (
        mutants.leaked_slots,
        Config(),
        [Arrive([1, 2, 3]), Arrive([1, 2, 3]), Prefill(0), Prefill(1)],
        "conservation",
    ),
    (leak_on_evict, Config(), [*INSERTS, Evict(2)], "conservation"),
    (double_owner, Config(), [*INSERTS], "conservation"),
    (never_evicts, Config(), [*INSERTS], "reference_model"),
    (mutants.wrong_evictable_size, Config(), [*INSERTS, Evict(2)], "conservation"),
    (
        mutants.crossed_values,
        Config(),
        [CoreInsert([1, 2, 3, 4]), CoreMatch([1, 2]), CoreMatch([1, 2, 3, 4])],
        "kv_content",
    ),
    (lost_stored_event, EVENTS, [*INSERTS, DrainEvents()], "event_replay"),
    (mutants.lost_event, EVENTS, [*INSERTS, Evict(2), DrainEvents()], "event_replay"),
    (mutants.doubled_event, EVENTS, [*INSERTS, Evict(2), DrainEvents()], "event_replay"),
    (mutants.reversed_events, EVENTS, [*INSERTS, Evict(8), DrainEvents()], "event_replay"),
    (mutants.wrong_block_hash, EVENTS, [*INSERTS, DrainEvents()], "event_replay"),
    (mutants.unhealthy, Config(), [*INSERTS, CoreMatch([1])], "sanity_check"),
    (
        mutants.refusal_that_changes,
        Config(),
        [*INSERTS, Lock("live:0"), Unlock(0, receipt="stripped")],
        "refusal",
    ),
]


@pytest.mark.parametrize(
    ("fault", "config", "trace", "oracle"), SHARED, ids=[fault.__name__ for fault, *_ in SHARED]
)
def test_a_shared_fault_is_found(
    fault: mutants.Mutation, config: Config, trace: list[AnyOp], oracle: str
) -> None:
    (found,) = run_twice(fault, config, trace).divergences
    assert found.kind == "oracle", found
    assert found.where.startswith(f"{oracle}: "), found.where
    assert found.side is None


def test_an_eviction_below_a_running_request_is_found() -> None:
    trace: list[AnyOp] = [Arrive([1, 2, 3]), Prefill(0), Evict(8), Arrive([1, 2, 3, 4]), Finish(0)]
    (found,) = run_twice(evicts_what_is_locked, Config(), trace).divergences
    assert found.kind == "oracle", found


@pytest.mark.parametrize("config", [Config(), EVENTS, Config(page_size=2, events=True)])
def test_a_sound_core_has_no_findings(config: Config) -> None:
    trace = [*INSERTS, Evict(2), DrainEvents(), Reset(), *INSERTS, DrainEvents()]
    assert run_twice(lambda core: None, config, trace).divergences == []


# --- The event index ----------------------------------------------------------------------


def digest_of(tokens: list[int], prior: bytes = b"") -> tuple[bytes, int]:
    digest = page_digest(prior, tokens)
    return digest, int.from_bytes(digest[:8], "big", signed=True)


def stored(tokens: list[int], parent: int | None = None, prior: bytes = b"") -> BlockStored:
    return BlockStored([digest_of(tokens, prior)[1]], parent, tokens, len(tokens), medium=GPU)


GPU = StorageMedium.GPU


def index(page_size: int = 2) -> EventIndex:
    return EventIndex(Config(page_size=page_size, events=True))


def test_stored_and_removed_blocks_cancel_out() -> None:
    block = stored([1, 2])
    assert index().replay([block, BlockRemoved(block.block_hashes, GPU)]) == []


def test_a_removal_of_what_was_never_stored_is_found() -> None:
    (found,) = index().replay([BlockRemoved([5], GPU)])
    assert "removed 5, which is not resident" in found.message


def test_a_block_below_one_that_is_not_resident_is_found() -> None:
    found = index().replay([stored([1, 2], parent=77)])
    assert any("stored below 77" in one.message for one in found)


def test_a_chained_block_is_hashed_after_its_parent() -> None:
    digest, parent = digest_of([1, 2])
    good = stored([3, 4], parent, digest)
    assert index().replay([stored([1, 2]), good]) == []
    bad = copy.deepcopy(good)
    bad.token_ids = [3, 5]
    (found,) = index().replay([stored([1, 2]), bad])
    assert "is not that of its tokens" in found.message


def test_a_cleared_index_is_empty() -> None:
    watched = index()
    block = stored([1, 2])
    assert watched.replay([block, AllBlocksCleared()]) == []
    assert watched.replay([BlockRemoved(block.block_hashes, GPU)]) != []


def test_blocks_of_other_tiers_do_not_count() -> None:
    other = next(medium for medium in StorageMedium if medium != GPU)
    assert index().replay([BlockRemoved([5], other)]) == []


def test_a_block_of_the_wrong_size_is_found() -> None:
    found = index(page_size=4).replay([stored([1, 2])])
    assert any("1 hashes for 2 units" in one.message for one in found)


def test_wide_tokens_are_hashed_as_eight_bytes_behind_a_marker() -> None:
    assert page_digest(b"", [2**32]) != page_digest(b"", [0])
    assert page_digest(b"", [2**32 - 1]) != page_digest(b"", [2**32])


def test_a_bigram_page_is_hashed_as_its_pairs() -> None:
    assert page_digest(b"", [(1, 2), (2, 3)]) == page_digest(b"", [1, 2, 2, 3])
