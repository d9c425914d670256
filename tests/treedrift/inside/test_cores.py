"""What SGLang's registry gives for each name: the core, its shadow or its recorder, or a reason."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.treedrift.inside.conftest import Inside
from treedrift.backends.contract import UnsupportedError
from treedrift.backends.sglang.environments import Environment
from treedrift.harness.transcript import Room
from treedrift.inside.cores import check_second, room_of
from treedrift.inside.variables import VariableError

Report = dict[str, Any]

# --- Without SGLang -----------------------------------------------------------------------


def given(allocator: Any = None, rows: Any = None) -> Any:
    return SimpleNamespace(token_to_kv_pool_allocator=allocator, req_to_token_pool=rows)


def test_the_room_of_a_plain_pool_is_its_size_and_the_longest_request() -> None:
    pools = given(SimpleNamespace(size=512), SimpleNamespace(max_context_len=64))
    assert room_of(pools) == Room(slots=512, row_length=64)


def test_no_request_is_longer_than_the_pool() -> None:
    pools = given(SimpleNamespace(size=512), SimpleNamespace(max_context_len=10**6))
    assert room_of(pools).row_length == 512


def test_windows_and_states_have_room_of_their_own() -> None:
    # The size of both pools together is the smaller one.
    allocator = SimpleNamespace(size=128, size_full=512, size_swa=128)
    rows = SimpleNamespace(max_context_len=64, mamba_pool=SimpleNamespace(size=16))
    wanted = Room(slots=512, row_length=64, window_slots=128, states=16)
    assert room_of(given(allocator, rows)) == wanted


def test_a_ring_of_every_request_has_no_window_slots() -> None:
    allocator = SimpleNamespace(size=128, size_full=512, size_swa=128, swa_req_ring=True)
    assert room_of(given(allocator)).window_slots is None


def test_of_a_cache_without_pools_no_trace_can_be_made() -> None:
    with pytest.raises(UnsupportedError, match="tell their size"):
        room_of(given())


@pytest.mark.parametrize("name", ["sglang-rust", "treedrift-python", "drill:lost-event"])
def test_cores_of_both_packages_and_drills_can_be_second(name: str) -> None:
    check_second(name)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("drill:lost-evnt", "did you mean drill:lost-event?"),
        ("drill:copy-pin-released-to-the-root", "this drill spoils treedrift's cache"),
        ("drill", "name one, as in drill:leaked-slots"),
        ("drill:", "name one, as in drill:leaked-slots"),
        ("slow", "must be one of sglang-python, sglang-rust, treedrift-python, treedrift-rust"),
        ("slow:er", "treedrift-rust, drill:NAME"),
        ("treedrft-rust", "did you mean treedrift-rust?"),
    ],
)
def test_what_can_not_be_second_is_a_wrong_variable(name: str, said: str) -> None:
    with pytest.raises(VariableError, match=f"TREEDRIFT_SHADOW_SECOND='{name}'") as error:
        check_second(name)
    assert said in str(error.value)


# --- In an environment with SGLang --------------------------------------------------------


@pytest.fixture(scope="module")
def report(inside: Inside) -> Report:
    """What came of every case, by its name."""
    said = inside(Path(__file__).with_name("cores_built_inside.py"))
    found: Report = json.loads(said.splitlines()[-1])
    return found


@pytest.mark.released
@pytest.mark.parametrize("case", ["a core of ours", "our other core"])
def test_a_core_of_ours_serves_without_a_word(report: Report, case: str) -> None:
    assert "DropIn" in report[case]["classes"]
    assert report[case]["log"] == []


@pytest.mark.released
@pytest.mark.parametrize(
    ("case", "reason"),
    [("sessions", "enable_session_radix_cache"), ("another device", "device")],
)
def test_where_sglangs_rust_core_gives_way_ours_do_with_the_reason(
    report: Report, case: str, reason: str
) -> None:
    assert "UnifiedTreeCore" in report[case]["classes"]
    (line,) = report[case]["log"]
    assert "gives way to SGLang's Python core" in line
    assert reason in line


@pytest.mark.released
def test_what_no_core_has_is_refused(report: Report) -> None:
    assert "best" in report["a policy that nobody has"]["error"]


@pytest.mark.released
@pytest.mark.parametrize(
    ("case", "first", "second"),
    [
        ("no variables", "sglang-rust@{}", "python"),
        ("a pair of SGLang's", "sglang-python@{}", "sglang-rust@{}"),
        ("a pair of ours", "rust", "drill:lost-event"),
    ],
)
def test_a_shadow_names_its_pair_as_traces_do(
    report: Report, managed: Environment, case: str, first: str, second: str
) -> None:
    release = managed.release
    assert report[case]["pair"] == [first.format(release), second.format(release)]
    assert report[case]["is_on"]
    (line,) = report[case]["log"]
    names = [name.format(release) for name in (first, second)]
    told = "INFO treedrift shadow: {} serves this cache, {} follows; no trace will be saved: "
    assert line == told.format(*names) + "TREEDRIFT_TRACE_DIR names no folder"


@pytest.mark.released
def test_a_shadow_says_at_its_start_where_traces_go(report: Report) -> None:
    (line,) = report["a shadow that saves"]["log"]
    assert line.startswith("INFO")
    assert "; traces go to /" in line
    assert line.endswith("/saved")


@pytest.mark.released
def test_a_shadow_says_at_its_start_that_it_can_not_save(report: Report) -> None:
    found = report["a shadow that can't write"]
    assert found["is_on"]
    (line,) = found["log"]
    assert line.startswith("WARNING")
    assert "no trace will be saved: TREEDRIFT_TRACE_DIR='/" in line
    assert "Not a directory" in line


@pytest.mark.released
def test_a_second_core_that_can_not_be_built_leaves_the_first_alone(report: Report) -> None:
    """SGLang falls back by itself, so the first is its Python core."""
    found = report["sessions under a shadow"]
    assert "UnifiedTreeCore" in found["classes"]
    assert not found["is_on"]
    (line,) = found["log"]
    assert "enable_session_radix_cache" in line


@pytest.mark.released
def test_a_strict_shadow_that_can_not_be_built_stops_the_cache(report: Report) -> None:
    assert "enable_session_radix_cache" in report["sessions under a strict shadow"]["error"]


@pytest.mark.released
def test_a_cache_that_is_not_drawn_has_no_shadow(report: Report) -> None:
    assert report["not drawn"]["pair"] is None
    assert "was not drawn" in " ".join(report["not drawn"]["log"])


@pytest.mark.released
@pytest.mark.parametrize(
    "case", ["a wrong variable", "an unknown second core", "a drill of the cache"]
)
def test_a_wrong_variable_stops_the_cache_that_asked_for_a_shadow(
    report: Report, case: str
) -> None:
    assert report[case]["error"].startswith("VariableError: TREEDRIFT_SHADOW_")


@pytest.mark.released
def test_variables_of_the_shadow_do_not_matter_to_a_core_alone(report: Report) -> None:
    assert "DropIn" in report["a wrong variable for somebody else"]["classes"]


@pytest.mark.released
@pytest.mark.parametrize(
    ("case", "core"),
    [("a recorder", "RustUnifiedTreeCore"), ("a recorder of ours", "DropIn")],
)
def test_a_recorder_serves_the_core_that_it_records(report: Report, case: str, core: str) -> None:
    assert core in report[case]["classes"][1:]
    (line,) = report[case]["log"]
    assert line.startswith("INFO treedrift recorder: ")
    assert line.endswith("/recorded")


@pytest.mark.released
def test_a_recorder_without_a_folder_records_nothing_and_says_so(report: Report) -> None:
    found = report["a recorder without a folder"]
    assert found["classes"][0] == "RustUnifiedTreeCore"
    (line,) = found["log"]
    assert "TREEDRIFT_TRACE_DIR" in line


@pytest.mark.released
def test_a_recorder_that_can_not_write_records_nothing_and_names_the_folder(
    report: Report,
) -> None:
    found = report["a recorder that can't write"]
    assert found["classes"][0] == "RustUnifiedTreeCore"
    (line,) = found["log"]
    assert "serves unrecorded: TREEDRIFT_TRACE_DIR='/" in line
    assert "Not a directory" in line
