"""A worker that crashes, hangs or eats memory is a divergence of its core; the campaign goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.harness import mutants
from treedrift.harness import lockstep as lockstep_module
from treedrift.harness.campaign import Budget, Campaign, Case
from treedrift.harness.config import Config
from treedrift.harness.events import Event, Found
from treedrift.harness.lockstep import LocalClient, Lockstep, RemoteClient
from treedrift.harness.ops import CoreInsert, Evict, Reset
from treedrift.harness.remote import Worker, resident_bytes, worker_command
from treedrift.harness.side import Settings
from treedrift.harness.trace import read_trace

HANDLERS = f"{Path(__file__).with_name('failing_sides.py')}:make_handlers"
PAIR = ("sound", "failing")
FATAL = Case(Config(), [CoreInsert([1]), CoreInsert([2]), Reset(), Evict(1)], 1)
HARMLESS = Case(Config(), [CoreInsert([1]), CoreInsert([2]), Evict(1)], 2)


@contextmanager
def pair_with(worker: Worker) -> Iterator[Lockstep]:
    remote = RemoteClient("failing", worker)
    pair = Lockstep({"sound": LocalClient("sound", mutants.side()), "failing": remote}, [PAIR])
    try:
        yield pair
    finally:
        pair.close()


def worker(core_name: str, memory_bytes_max: int | None = None) -> Worker:
    command = worker_command(core_name, handlers=HANDLERS)
    return Worker(command, memory_bytes_max=memory_bytes_max)


def run_three(pair: Lockstep, folder: Path, heard: list[Event] | None = None) -> Campaign:
    """A fatal case between two harmless ones."""
    campaign = Campaign(pair, Settings(), folder, ([] if heard is None else heard).append)
    three = [replace(case, number=n) for n, case in enumerate((HARMLESS, FATAL, HARMLESS))]
    campaign.run(three, Budget())
    return campaign


@pytest.mark.parametrize(
    ("core_name", "kind", "says"), [("exits", "crash", "7"), ("killed", "crash", "SIGKILL")]
)
def test_a_crash_is_kept_with_its_trace_and_the_campaign_goes_on(
    tmp_path: Path, core_name: str, kind: str, says: str
) -> None:
    with pair_with(worker(core_name)) as pair:
        campaign = run_three(pair, tmp_path)
    (found,) = campaign.kinds.values()
    assert (found.kind, found.side, found.signature) == (kind, "failing", f"{kind}:failing")
    assert says in found.where
    assert campaign.tally.cases == 3
    assert found.file is not None
    saved = read_trace(found.file)
    assert saved.ops == FATAL.ops
    assert saved.header.expect == "diverges"


def test_a_hang_past_the_limit_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hanging = worker("hangs")
    hanging.start()
    with pair_with(hanging) as pair:
        monkeypatch.setattr(lockstep_module, "BATCH_SECONDS_MAX", 3.0)
        campaign = Campaign(pair, Settings(), tmp_path, lambda event: None)
        campaign.run([FATAL], Budget())
    (found,) = campaign.kinds.values()
    assert found.signature == "hang:failing"
    assert found.file is not None
    assert read_trace(found.file).ops == FATAL.ops


def test_memory_beyond_the_limit_is_kept(tmp_path: Path) -> None:
    with worker("sound") as sound:
        assert sound.process_id is not None
        limit = resident_bytes(sound.process_id) + 256 * 2**20
    with pair_with(worker("hungry", limit)) as pair:
        campaign = run_three(pair, tmp_path)
    assert [found.signature for found in campaign.kinds.values()] == ["memory:failing"]
    assert campaign.tally.cases == 3


def test_a_worker_that_dies_when_a_case_opens_is_a_crash(tmp_path: Path) -> None:
    heard: list[Event] = []
    with pair_with(worker("dies at open")) as pair:
        campaign = run_three(pair, tmp_path, heard)
    assert [found.op_kind for found in campaign.kinds.values()] == ["open"]
    found = [event.divergence.signature for event in heard if isinstance(event, Found)]
    assert found == ["crash:failing"] * 3


def test_a_sound_worker_agrees_with_a_side_in_this_process(tmp_path: Path) -> None:
    with pair_with(worker("sound")) as pair:
        campaign = run_three(pair, tmp_path)
    assert campaign.kinds == {}
    assert campaign.tally.op_count == 10
