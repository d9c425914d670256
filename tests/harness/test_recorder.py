"""The recording proxy: every call of a core, as plain data, at the moment it is answered."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
import torch

from treedrift.backends.contract import (
    CacheInitParams,
    ComponentType,
    ContractError,
    DecLockRefParams,
    IncLockRefResult,
    InsertParams,
    MatchPrefixParams,
    RadixKey,
    UnknownNodeError,
)
from treedrift.backends.python_core import PythonTreeCore
from treedrift.harness.canonical import Names
from treedrift.harness.recorder import (
    Recorder,
    arguments_of,
    ending_of,
    parameters_of,
    recorded_methods,
)
from treedrift.harness.transcript.call import Call

FULL = ComponentType.FULL


@pytest.fixture
def core() -> Any:
    return Recorder(PythonTreeCore(CacheInitParams(page_size=1)))


def insert(core: Any, tokens: list[int]) -> None:
    core.begin_insert(InsertParams(key=RadixKey(array("q", tokens)), value=torch.tensor(tokens)))
    core.end_insert()


def test_a_call_is_recorded_with_its_arguments_and_its_result(core: Any) -> None:
    core.match_prefix(MatchPrefixParams(RadixKey(array("q", [1, 2]))))
    ((method, arguments, end),) = core.calls
    assert method == "match_prefix"
    assert arguments[0][:2] == ["MatchPrefixParams", ["key", None, None, False, [1, 2]]]
    assert end[0] == "ok"
    assert end[1][0] == "MatchResult"


def test_a_result_is_recorded_before_anybody_can_change_it(core: Any) -> None:
    insert(core, [1, 2, 3])
    core.calls.clear()
    slots = core.all_values_flatten()
    slots.zero_()
    assert core.calls == [["all_values_flatten", [], ["ok", [1, 2, 3]]]]


def test_an_error_is_recorded_and_goes_on(core: Any) -> None:
    with pytest.raises(UnknownNodeError) as raised:
        core.is_root(12345)
    assert core.calls == [
        [
            "is_root",
            [["unknown", "12345"]],
            ["error", "UnknownNodeError", ["unknown", "12345"]],
        ]
    ]
    assert core.last_error is raised.value
    assert core.behaviours["error.UnknownNodeError"] == 1


def test_handles_in_arguments_and_results_have_the_same_number(core: Any) -> None:
    root = core.root_node_handle()
    core.is_root(root)
    assert core.calls[0][2] == ["ok", 0]
    assert core.calls[1] == ["is_root", [0], ["ok", True]]


def test_keyword_arguments_are_recorded_with_their_names(core: Any) -> None:
    core.evict_device_start(component_type=FULL, request_cnt=3)
    assert core.calls == [
        ["evict_device_start", [["component_type", 0], ["request_cnt", 3]], ["ok", None]]
    ]


def test_a_setting_is_recorded_as_an_assignment(core: Any) -> None:
    core.write_through_threshold = 3
    assert core.calls == [["write_through_threshold =", [3], ["ok", None]]]
    assert core.core.write_through_threshold == 3


def test_a_refused_setting_is_recorded_as_an_error(core: Any) -> None:
    with pytest.raises(TypeError):
        core.enable_storage = "yes"
    assert core.calls[0][0] == "enable_storage ="
    assert core.calls[0][2][:2] == ["error", "TypeError"]


def test_a_cache_assigns_nothing_but_settings(core: Any) -> None:
    with pytest.raises(AttributeError, match="page_size"):
        core.page_size = 3


def test_reading_the_empty_match_is_recorded(core: Any) -> None:
    assert core.empty_match_result.device_prefix_len == 0
    assert core.calls[0][0] == "empty_match_result"


def test_facts_are_read_without_a_record(core: Any) -> None:
    assert core.page_size == 1
    assert core.calls == []


def test_time_in_the_core_adds_up(core: Any) -> None:
    assert core.core_ns == 0
    insert(core, [1])
    first = core.core_ns
    assert first > 0
    insert(core, [1])
    assert core.core_ns > first


def test_behaviours_are_counted(core: Any) -> None:
    insert(core, [1, 2, 3])
    insert(core, [1, 2])
    core.match_prefix(MatchPrefixParams(RadixKey(array("q", [1]))))
    core.match_prefix(MatchPrefixParams(RadixKey(array("q", [9]))))
    counted = {name: core.behaviours[name] for name in ("insert.fresh", "insert.overlap")}
    assert counted == {"insert.fresh": 1, "insert.overlap": 1}
    assert core.behaviours["match.split"] == 1
    assert core.behaviours["match.miss"] == 1


def test_a_refusal_that_changes_nothing_is_not_noted(core: Any) -> None:
    core.watch_refusals(lambda: core.core.all_values_flatten().tolist())
    with pytest.raises(ContractError):
        core.evict_device_end(FULL)
    assert core.changed_by_refusal == []


def test_a_refusal_that_changes_something_is_noted(core: Any) -> None:
    insert(core, [1, 2])
    leaf = core.match_prefix(MatchPrefixParams(RadixKey(array("q", [1, 2])))).last_device_node
    reads = iter([1, 2])
    core.watch_refusals(lambda: next(reads))
    with pytest.raises(ContractError):
        core.dec_lock_ref(leaf, DecLockRefParams(node_id=leaf))
    assert core.changed_by_refusal == ["dec_lock_ref"]


def test_every_method_of_the_contract_is_recorded_but_the_printed_text() -> None:
    names = recorded_methods()
    assert "match_prefix" in names
    assert "pretty_print" not in names
    assert not [name for name in names if name.startswith("_")]


def test_parameters_have_the_order_of_the_contract() -> None:
    assert parameters_of("dec_lock_ref") == ["node_id", "params", "skip_swa"]
    assert parameters_of("no_such_method") == []


# --- Calls that somebody else watched -----------------------------------------------------


def written_down(call: Call, ordered: bool = True) -> Any:
    names = Names()
    return [call.method, arguments_of(names, call), *ending_of(names, call, ordered)]


def test_a_watched_call_is_written_down_as_the_proxy_does(core: Any) -> None:
    params = MatchPrefixParams(RadixKey(array("q", [1, 2])))
    result = core.match_prefix(params)
    call = Call("match_prefix", {"params": params}, result)
    assert core.calls == [written_down(call)]


def test_a_watched_error_is_written_down_as_the_proxy_does(core: Any) -> None:
    with pytest.raises(UnknownNodeError) as caught:
        core.is_root(77)
    call = Call("is_root", {"node_id": 77}, error=caught.value)
    assert core.calls == [written_down(call)]


def test_watched_buffers_and_arguments_that_are_left_out_have_their_places() -> None:
    filled: dict[str, Any] = {"device_frees": {}, "host_frees": {FULL: []}, "cache_actions": []}
    call = Call("evict_excess_path_states", {"tail_node_id": None}, filled=filled)
    assert written_down(call)[1:] == [[None] * 4, ["ok", None], [[], [[0, []]], []]]
    lock = Call("inc_lock_ref", {}, IncLockRefResult(1, None))
    assert written_down(lock)[1] == [None, None]


def test_a_watched_assignment_and_a_clearing_are_written_down() -> None:
    assert written_down(Call("is_write_back =", {"value": True}))[1:] == [[True], ["ok", None]]
    assert written_down(Call("kv_events.record_all_cleared"))[1:] == [[], ["ok", None]]


def test_a_watched_answer_that_the_contract_does_not_allow_is_unreadable() -> None:
    assert written_down(Call("match_prefix", result="nothing"))[2:] == [["unreadable", "str"]]


def test_watched_results_in_any_order_are_sorted_if_asked_for() -> None:
    call = Call("all_values_flatten", result=torch.tensor([3, 1]))
    assert written_down(call)[2] == ["ok", [3, 1]]
    assert written_down(call, ordered=False)[2] == ["ok", [1, 3]]
