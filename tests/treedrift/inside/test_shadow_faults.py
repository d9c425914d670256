"""What a shadow lacks or fails at is told as its own fault, and the first core goes on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.treedrift.inside.shadow_runs import (
    PAIR,
    Make,
    Panic,
    Shadowing,
    cases,
    observations,
    second,
)
from treedrift.backends.contract import (
    CacheInitParams,
    ComponentType,
    UnknownNodeError,
    UnsupportedError,
)
from treedrift.backends.python_core import PythonTreeCore
from treedrift.backends.rust_core import RustTreeCore
from treedrift.inside.reporting import Reporter
from treedrift.inside.shadow import ShadowDivergenceError

FULL = ComponentType.FULL


@pytest.mark.parametrize("error", [UnsupportedError("no component"), Panic("native")])
def test_a_second_core_that_can_not_be_built_is_told(error: BaseException) -> None:
    def refuse(params: CacheInitParams) -> Any:
        raise error

    core: Any = Shadowing(refuse)(CacheInitParams())
    assert type(core) is PythonTreeCore
    assert (core.treedrift_status.faults, core.treedrift_status.is_on) == (1, False)
    assert f"{type(error).__name__}: {error}" in core.treedrift_status.last
    with pytest.raises(type(error)):
        Shadowing(refuse, strict=True)(CacheInitParams())


def test_a_second_core_that_lacks_what_the_first_has_is_a_fault() -> None:
    lacking = second(reset=UnsupportedError("no such tier"))
    core: Any = Shadowing(lacking)(CacheInitParams())
    core.reset()
    assert type(core) is PythonTreeCore
    assert (core.treedrift_status.faults, core.treedrift_status.divergences) == (1, 0)
    assert "UnsupportedError: reset: no such tier" in core.treedrift_status.last
    with pytest.raises(UnsupportedError):
        Shadowing(lacking, strict=True)(CacheInitParams()).reset()


def test_a_second_core_that_lacks_what_the_first_refuses_for_another_reason_is_a_fault() -> None:
    core: Any = Shadowing(second(is_root=UnsupportedError("no such tier")))(CacheInitParams())
    with pytest.raises(UnknownNodeError):
        core.is_root(2**40)
    assert (core.treedrift_status.faults, core.treedrift_status.divergences) == (1, 0)


def test_a_first_core_that_can_not_be_watched_is_told() -> None:
    core: Any = Shadowing(RustTreeCore, second(total_size=(0, 0)))(CacheInitParams())
    assert core.total_size() == (0, 0)
    assert "WatchError" in core.treedrift_status.last


class Broken:
    """A history that fails at one of its methods."""

    lacks_last = False

    def __init__(self, place: str) -> None:
        self._place = place

    def add(self, call: Any) -> None:
        self._maybe_fail("add")

    def trace(self, **header: Any) -> Any:
        self._maybe_fail("trace")

    def _maybe_fail(self, place: str) -> None:
        if place == self._place:
            raise ValueError("the history fails")


def with_history(place: str, make_second: Make, tmp_path: Any, **settings: Any) -> Shadowing:
    return Shadowing(
        make_second,
        make_reporter=lambda: Reporter(PAIR, tmp_path),
        make_history=lambda params: Broken(place),
        **settings,
    )


def test_a_history_that_fails_ends_the_shadow_alone(
    tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    watched = with_history("add", RustTreeCore, tmp_path)
    config, ops = next(iter(cases("full", 1)))
    assert observations(watched, config, ops) == observations(PythonTreeCore, config, ops)
    assert (watched.status.faults, watched.status.divergences) == (1, 0)
    assert len([one for one in caplog.records if one.name == "treedrift"]) == 1
    with pytest.raises(ValueError, match="the history fails"):
        with_history("add", RustTreeCore, tmp_path, strict=True)(CacheInitParams()).reset()


def test_a_trace_that_can_not_be_made_is_told_with_the_divergence(tmp_path: Any) -> None:
    core: Any = with_history("trace", second(is_root=False), tmp_path)(CacheInitParams())
    assert core.is_root(core.root_node_handle())
    assert "No trace is saved: ValueError: the history fails." in core.treedrift_status.last
    assert list(tmp_path.iterdir()) == []


def test_a_history_that_can_not_be_had_costs_the_trace_alone(tmp_path: Any) -> None:
    def refuse(params: CacheInitParams) -> Any:
        raise UnsupportedError("no trace can say this")

    watched = Shadowing(
        second(is_root=False),
        make_reporter=lambda: Reporter(PAIR, tmp_path),
        make_history=refuse,
        strict=True,
    )
    core: Any = watched(CacheInitParams(tree_components=(FULL,)))
    with pytest.raises(ShadowDivergenceError, match="No trace is saved: no trace can say this"):
        core.is_root(core.root_node_handle())
    assert "No trace is saved: no trace can say this." in core.treedrift_status.last
