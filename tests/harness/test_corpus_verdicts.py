"""Every verdict on a saved trace, and what makes it one that nobody has to look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness import mutants
from tests.harness.spoilt_pair import CONFIG, PAIR, STEPS, WRONG_ORDER, spoilt_pair
from treedrift.backends.contract import UnsupportedError
from treedrift.backends.python_core import PythonTreeCore
from treedrift.harness import corpus
from treedrift.harness.config import Config
from treedrift.harness.corpus import Verdict, Verifier, verdict
from treedrift.harness.ledger import Entry, Ledger, entry_from
from treedrift.harness.lockstep import LocalClient, Lockstep, Pair
from treedrift.harness.ops import Ask, CoreInsert, Misuse
from treedrift.harness.side import HarnessError, LocalSide
from treedrift.harness.trace import Known, Trace, TraceError, new_trace, write_trace

OTHER_KIND = "difference:evict:sizes.evictable"


def failure(**header: Any) -> Trace:
    """A trace that `mutants.wrong_free_order` was found with."""
    facts = {"pair": PAIR, "expect": "diverges", "signature": WRONG_ORDER}
    return new_trace(CONFIG, STEPS, **facts | header)


def known(releases: tuple[str, ...] = ("*",), **header: Any) -> Trace:
    """The same as an entry of the ledger."""
    facts = Known(core="rust", releases=list(releases), signatures=[WRONG_ORDER])
    return failure(**{"rule": "EVD-2", "known": facts} | header)


def entry(trace: Trace) -> Entry:
    return entry_from(trace, "wrong-order.jsonl")


def seed(**header: Any) -> Trace:
    return new_trace(CONFIG, STEPS, **header)


def judged(trace: Trace, *mutations: mutants.Mutation, ledger: Ledger | None = None) -> Verdict:
    return verdict(trace, PAIR, spoilt_pair(*mutations), ledger)


def seen(found: Verdict) -> tuple[str, bool]:
    return found.kind, found.expected


# --- Traces that should agree -------------------------------------------------------------


def test_a_trace_that_should_agree_and_does_is_replayed_several_times() -> None:
    found = judged(seed())
    assert seen(found) == ("AGREES", True)
    assert found.runs == corpus.REPLAYS > 1


def test_a_large_trace_is_replayed_again_only_if_something_is_wrong() -> None:
    large = new_trace(Config(capacity=2 * corpus.SMALL_POOL), STEPS)
    assert judged(large).runs == 1
    assert judged(large, mutants.wrong_free_order).runs == corpus.REPLAYS


def test_a_seed_that_diverges_is_new() -> None:
    found = judged(seed(), mutants.wrong_free_order)
    assert seen(found) == ("DIVERGES", False)
    assert found.divergence is not None
    assert found.divergence.signature == WRONG_ORDER
    assert found.detail == "new"


def test_a_seed_that_shows_a_known_difference_is_explained() -> None:
    found = judged(seed(), mutants.wrong_free_order, ledger=Ledger([entry(known())]))
    assert seen(found) == ("DIVERGES", True)
    assert found.known == "wrong-order"


def test_a_regression_that_comes_back_is_told_from_a_new_failure() -> None:
    regression = seed(signature=WRONG_ORDER)
    again = judged(regression, mutants.wrong_free_order)
    assert seen(again) == ("DIVERGES", False)
    assert again.detail == "what was fixed shows again"
    assert judged(regression, mutants.wrong_evictable_size).detail == "new"


# --- Traces that should diverge -----------------------------------------------------------


@pytest.mark.parametrize("make", [failure, known])
def test_a_failure_that_shows_what_it_was_saved_for_is_expected(make: Callable[[], Trace]) -> None:
    found = judged(make(), mutants.wrong_free_order)
    assert seen(found) == ("DIVERGES", True)
    assert found.divergence is not None
    assert found.divergence.signature == WRONG_ORDER


@pytest.mark.parametrize("make", [failure, known])
def test_a_failure_that_agrees_is_fixed(make: Callable[[], Trace]) -> None:
    assert seen(judged(make())) == ("FIXED", False)


@pytest.mark.parametrize("make", [failure, known])
def test_a_failure_that_diverges_in_another_way_says_so(make: Callable[[], Trace]) -> None:
    found = judged(make(), mutants.wrong_evictable_size)
    assert seen(found) == ("DIVERGES", False)
    assert found.detail == f"diverges in another way than {WRONG_ORDER}"
    assert found.divergence is not None
    assert found.divergence.signature == OTHER_KIND


def test_a_failure_without_a_signature_may_diverge_in_any_way() -> None:
    found = judged(failure(signature=None), mutants.wrong_evictable_size)
    assert seen(found) == ("DIVERGES", True)


def test_a_failure_of_other_cores_says_nothing_of_this_pair() -> None:
    trace = failure(pair=("python", "drill:canary"))
    assert seen(judged(trace)) == ("AGREES", True)
    assert seen(judged(trace, mutants.wrong_free_order)) == ("DIVERGES", False)


def test_a_failure_found_with_the_sides_exchanged_is_the_same() -> None:
    turned = failure(pair=PAIR[::-1])
    assert seen(judged(turned, mutants.wrong_free_order)) == ("DIVERGES", True)
    assert seen(judged(turned)) == ("FIXED", False)


def test_a_known_difference_says_nothing_of_other_releases() -> None:
    trace = known(releases=("0.5.23",))
    assert seen(judged(trace)) == ("AGREES", True)
    found = judged(trace, mutants.wrong_free_order)
    assert seen(found) == ("DIVERGES", False)
    assert found.detail == "the ledger does not name this release"


def soft_then_hard(core: Any) -> None:
    """Leaves the phase of a rotation base unanswered, and frees in the wrong order."""
    core.rotation_phase_of = lambda node: 7
    mutants.wrong_free_order(core)


def test_a_known_difference_hides_no_other_one_that_follows() -> None:
    phase = "difference:ask:calls[].rotation_phase_of"
    facts = Known(core="rust", releases=["*"], signatures=[phase])
    trace = known(signature=phase, known=facts)
    trace.ops[1:1] = [Ask("rotation", ["live:0"])]
    found = judged(trace, soft_then_hard)
    assert seen(found) == ("DIVERGES", False)
    assert found.detail == f"diverges in a new way besides {phase}"
    assert found.divergence is not None
    assert found.divergence.signature == WRONG_ORDER


# --- What can't be judged -----------------------------------------------------------------


def test_replays_that_differ_make_a_trace_flaky() -> None:
    count = 0

    def every_other_time(core: Any) -> None:
        nonlocal count
        count += 1
        if count % 2:
            mutants.wrong_free_order(core)

    found = judged(failure(), every_other_time)
    assert seen(found) == ("FLAKY", False)
    assert found.detail == f"replays differ: agrees, {WRONG_ORDER}"


class FailingSide(LocalSide):
    """A side that ends its batches with an error of the harness."""

    error: Exception = HarnessError("op 0 (core_insert) failed")

    def run(self, batch: Any) -> Any:
        raise self.error


def lockstep_with(side: LocalSide) -> Lockstep:
    clients = {"python": LocalClient("python", mutants.side()), "rust": LocalClient("rust", side)}
    return Lockstep(clients, [PAIR])


@pytest.mark.parametrize("error", [FailingSide.error, AttributeError("nobody foresaw this")])
def test_a_failing_harness_is_an_error(error: Exception) -> None:
    side = FailingSide(PythonTreeCore)
    side.error = error
    found = verdict(seed(), PAIR, lockstep_with(side))
    assert seen(found) == ("ERROR", False)
    assert str(error) in found.detail
    assert found.runs == 1


def refusing(error: Exception) -> LocalSide:
    def refuse(params: Any) -> Any:
        raise error

    return LocalSide(refuse)


def test_a_configuration_that_both_cores_refuse_is_not_supported() -> None:
    windows = new_trace(Config(components=("full", "swa")), STEPS)
    found = judged(windows)
    assert seen(found) == ("UNSUPPORTED", True)
    assert "InvalidArgumentError" in found.detail
    assert found.runs == 1


def test_a_configuration_that_one_core_does_not_support_is_not_supported() -> None:
    found = verdict(seed(), PAIR, lockstep_with(refusing(UnsupportedError("not here"))))
    assert seen(found) == ("UNSUPPORTED", True)
    assert found.detail == "rust does not support the configuration"


def test_a_configuration_that_one_core_refuses_otherwise_diverges() -> None:
    found = verdict(seed(), PAIR, lockstep_with(refusing(ValueError("no"))))
    assert seen(found) == ("DIVERGES", False)
    assert found.divergence is not None
    assert found.divergence.kind == "refused"


@pytest.mark.parametrize(
    ("pair", "ends"), [(PAIR, "None|UnsupportedError"), (PAIR[::-1], "UnsupportedError|None")]
)
def test_a_refusal_that_a_trace_was_saved_for_is_expected(pair: Pair, ends: str) -> None:
    trace = failure(pair=pair, signature=f"refused:open:{ends}")
    found = verdict(trace, PAIR, lockstep_with(refusing(UnsupportedError("not here"))))
    assert seen(found) == ("DIVERGES", True)


HOSTILE = new_trace(CONFIG, [Misuse("demote"), CoreInsert([1])])


def test_hostile_ops_are_kept_from_released_cores() -> None:
    with_verifier = Verifier(Ledger())
    found = with_verifier.verdict(HOSTILE, ("python", "sglang-rust@0.5.23"))
    assert seen(found) == ("UNSUPPORTED", True)
    assert "breaks the protocol" in found.detail
    assert seen(with_verifier.verdict(HOSTILE, PAIR)) == ("AGREES", True)
    with_verifier.close()


# --- The verifier -------------------------------------------------------------------------


@pytest.fixture
def verifier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Verifier]:
    monkeypatch.setenv("TREEDRIFT_HOME", str(tmp_path / "home"))
    made = Verifier(Ledger())
    yield made
    made.close()


@pytest.mark.parametrize(
    ("pair", "expected", "says"),
    [
        (("python", "sglang-rust@0.5.23"), ("UNSUPPORTED", True), "treedrift env add"),
        (("python", "sglang-rust"), ("UNSUPPORTED", True), "treedrift env add"),
        (("python", "rusty"), ("ERROR", False), "did you mean rust?"),
        (("python", "drill:nothing"), ("ERROR", False), "no variant"),
    ],
)
def test_a_pair_that_is_not_there_is_a_verdict(
    verifier: Verifier, pair: Pair, expected: tuple[str, bool], says: str
) -> None:
    for _ in range(2):
        found = verifier.verdict(seed(), pair)
        assert seen(found) == expected
        assert says in found.detail


def test_an_unknown_core_is_an_error_for_hostile_ops_too(verifier: Verifier) -> None:
    assert seen(verifier.verdict(HOSTILE, ("python", "rusty"))) == ("ERROR", False)


def test_a_file_is_judged_on_its_own_pair_unless_told(verifier: Verifier, tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    write_trace(path, seed(pair=("python", "rusty")))
    assert verifier.verdict_on_file(path).kind == "ERROR"
    assert seen(verifier.verdict_on_file(path, PAIR)) == ("AGREES", True)


def test_a_bad_file_is_an_error_that_names_its_line(verifier: Verifier, tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"treedrift": "trace", "version": 3}\n{"op": "nothing"}\n')
    found = verifier.verdict_on_file(path)
    assert seen(found) == ("ERROR", False)
    assert "bad.jsonl:2: field `op`" in found.detail


def test_an_entry_that_says_too_little_is_an_error(verifier: Verifier, tmp_path: Path) -> None:
    path = tmp_path / "entry.jsonl"
    write_trace(path, known(rule=None))
    assert "entry.jsonl:1: field `rule`" in verifier.verdict_on_file(path).detail


def test_a_folder_without_traces_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no traces here"):
        corpus.find_traces([tmp_path])


@pytest.mark.released
def test_the_known_differences_show_on_the_released_pair_and_explain_the_seeds() -> None:
    root = Path(__file__).parents[2] / "corpora"
    ledger = Ledger.read(root / "known")
    made = Verifier(ledger)
    try:
        for path in (*(root / "known").iterdir(), root / "seeds" / "match-insert-x6.jsonl"):
            found = made.verdict_on_file(path, ("sglang-python@0.5.23", "sglang-rust@0.5.23"))
            assert seen(found) == ("DIVERGES", True), path.stem
            assert found.known is not None
    finally:
        made.close()
