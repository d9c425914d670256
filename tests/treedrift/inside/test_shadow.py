"""A second core follows the first through every call, and the first one's cache never notices."""

from __future__ import annotations

import gc
import weakref
from array import array
from typing import Any

import pytest
import torch

from tests.treedrift.inside.shadow_runs import (
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
    DecLockRefParams,
    DecLockRefResult,
    IncLockRefResult,
    InsertParams,
    MatchPrefixParams,
    MatchResult,
    RadixKey,
    SWARebuild,
    UnsupportedError,
)
from treedrift.backends.python_core import PythonTreeCore
from treedrift.backends.registry import local_backend
from treedrift.backends.rust_core import RustTreeCore
from treedrift.harness.canonical import Names, UnknownNameError
from treedrift.harness.recorder import recorded_methods
from treedrift.inside import shadow
from treedrift.inside.reporting import Reporter
from treedrift.inside.shadow import ShadowDivergenceError
from treedrift.models.drills import DRILLS

PROFILES = ["full", "swa", "mamba", "hybrid", "windows"]
FULL, SWA = ComponentType.FULL, ComponentType.SWA
CORES: list[tuple[Make, Make]] = [(PythonTreeCore, RustTreeCore), (RustTreeCore, PythonTreeCore)]


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize(("first", "second"), CORES, ids=["python,rust", "rust,python"])
def test_a_sound_second_core_follows_and_changes_nothing(
    first: Make, second: Make, profile: str
) -> None:
    op_count = 0
    watched = Shadowing(second, first, strict=True)
    for config, ops in cases(profile, 8):
        assert observations(watched, config, ops) == observations(first, config, ops)
        op_count += len(ops)
    told = watched.statuses
    assert all(status.is_on and status.compared for status in told)
    assert [status.divergences + status.faults for status in told] == [0] * len(told)
    assert op_count > 500
    assert sum(status.calls for status in told) > 4 * op_count


FAULTS = [
    "crossed-values",
    "double-owner",
    "handle-stays-above",
    "limit-counts-pairs",
    "partial-match-refused",
    "root-for-no-visit",
    "frees-merged",
    "never-suspended",
    "owned-slots-freed",
    "leaked-slots",
    "flipped-tie-break",
    "lost-hit-count",
    "fifo-by-access",
    "never-evicts",
    "no-progress-told",
    "unbacked-tokens-forgotten",
    "lock-of-the-node-alone",
    "unlocked-leaf-never-offered",
    "dead-node-locked",
    "wrong-evictable-size",
    "total-without-locked",
    "reused-handle",
    "reset-rewinds-handles",
    "chain-starts-anew",
    "backfill-counts-all",
    "backup-from-the-leaf-up",
    "late-backup",
    "path-counts-from-each-node",
    "root-counts-as-evicted",
    "lost-event",
    "wrong-block-hash",
    "evicted-window-recovered",
    "rebuilt-before-the-free",
    "window-locked-up-to-the-root",
    "full-hit-cut-to-the-state",
    "cap-of-one-less",
    "two-at-a-time",
    "window-slots-freed-for-full",
]


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_the_second_core_is_found_and_the_cache_goes_on(name: str) -> None:
    drill = f"drill:{name}"
    watched = Shadowing(
        local_backend(drill).create, make_reporter=lambda: Reporter(("python", drill))
    )
    for config, ops in cases(DRILLS[name].profile, 8):
        assert observations(watched, config, ops) == observations(PythonTreeCore, config, ops)
        if watched.statuses and watched.status.divergences:
            break
    status = watched.status
    assert (status.divergences, status.faults, status.is_on) == (1, 0, False)
    assert f"python and {drill} part at call {status.calls} (" in status.last


# --- One call ------------------------------------------------------------------------------


def key(*tokens: int) -> RadixKey:
    return RadixKey(array("q", tokens))


def insert(core: Any, *tokens: int) -> Any:
    """Insert a key, with a window of its own; returns its node."""
    value = torch.arange(1, len(tokens) + 1, dtype=torch.int64)
    steps = [core.begin_insert(InsertParams(key=key(*tokens), value=value))]
    while True:
        for action in steps[-1].actions:
            if isinstance(action, SWARebuild):
                core.set_component_device_value(action.node_id, SWA, action.source_value.clone())
        if steps[-1].result is not None:
            break
        steps.append(core.resume_insert())
    core.end_insert()
    return steps[-1].result.last_device_node


class Apart(PythonTreeCore):
    """Its handles and receipts are others than those of a plain core."""

    def __init__(self, params: CacheInitParams) -> None:
        super().__init__(params)
        node = insert(self, 7, 8, 9)
        for _ in range(100):
            self.dec_lock_ref(node, self.inc_lock_ref(node).to_dec_params())
        self.reset()


class Vandal(RustTreeCore):
    """Spoils all that it ever got and gave at its `SPOILT_AT`-th call."""

    def __init__(self, params: CacheInitParams) -> None:
        super().__init__(params)
        self.held: list[Any] = []

    def hold(self, *items: Any) -> None:
        self.held.append(items)
        if len(self.held) == SPOILT_AT:
            for item in self.held:
                spoil(item)


SPOILT_AT = 150


def spoil(item: Any) -> None:
    """Change whatever can be changed, down to the last element."""
    if isinstance(item, torch.Tensor):
        item.fill_(-9)
    elif isinstance(item, RadixKey):
        del item.token_ids[:]
    elif isinstance(item, (list, tuple, dict)):
        for one in item.values() if isinstance(item, dict) else item:
            spoil(one)
        if not isinstance(item, tuple):
            item.clear()
    else:
        for name in getattr(item, "__struct_fields__", ()):
            spoil(getattr(item, name))


def _spoiling(name: str) -> Any:
    def call(self: Vandal, *args: Any, **kwargs: Any) -> Any:
        result = getattr(RustTreeCore, name)(self, *args, **kwargs)
        self.hold(args, kwargs, result)
        return result

    return call


for _name in recorded_methods():
    if _name not in ("component_evictable_size", "component_protected_size"):
        setattr(Vandal, _name, _spoiling(_name))


@pytest.mark.parametrize("profile", ["hybrid", "full-linker"])
def test_nothing_is_shared_between_the_cores(profile: str) -> None:
    made: list[Vandal] = []

    def make(params: CacheInitParams) -> Vandal:
        made.append(Vandal(params))
        return made[-1]

    watched = Shadowing(make, RustTreeCore)
    for config, ops in cases(profile, 8, hostile=False):
        assert observations(watched, config, ops) == observations(RustTreeCore, config, ops)
    assert sum(len(one.held) >= SPOILT_AT for one in made) > 3


NO_LENGTH: Any = object()
ANSWERS: list[tuple[Any, str]] = [
    (Panic("native"), r"ok|Panic"),
    (RuntimeError("broken"), r"ok|RuntimeError"),
    ("no match", r"ok|ok"),
    (None, r"ok|ok"),
    (MatchResult(True, 1, 1, 1), "result.device_prefix_len"),
    (MatchResult(NO_LENGTH, 1, 1, 1), "result.device_prefix_len"),
]


@pytest.mark.parametrize(("answer", "where"), ANSWERS)
def test_whatever_the_second_core_answers_the_first_goes_on(answer: Any, where: str) -> None:
    watched = Shadowing(second(match_prefix=answer))
    core: Any = watched(CacheInitParams())
    assert core.match_prefix(MatchPrefixParams(key(1))).device_prefix_len == 0
    assert type(core) is PythonTreeCore
    status = core.treedrift_status
    assert (status.divergences, status.faults, status.is_on) == (1, 0, False)
    assert f"calls[0].match_prefix.{where}" in status.last


@pytest.mark.parametrize("exit_asked", [KeyboardInterrupt, SystemExit])
def test_an_exit_is_no_answer_of_the_second_core(exit_asked: type[BaseException]) -> None:
    core: Any = Shadowing(second(match_prefix=exit_asked()))(CacheInitParams())
    with pytest.raises(exit_asked):
        core.match_prefix(MatchPrefixParams(key(1)))
    assert core.treedrift_status.divergences == 0
    assert type(core) is PythonTreeCore


@pytest.mark.parametrize("answer", [Panic("native"), RuntimeError("broken"), "many"])
def test_sizes_that_can_not_be_read_are_a_divergence(answer: Any) -> None:
    watched = Shadowing(second(full_evictable_size=answer))
    core: Any = watched(CacheInitParams())
    insert(core, 1, 2)
    assert core.evictable_size() == 2
    assert (watched.status.divergences, watched.status.faults) == (1, 0)
    assert "(sizes." in watched.status.last


FIGURES = {
    "full_evictable_size": "evictable",
    "full_protected_size": "protected",
    "swa_evictable_size": "swa_evictable",
    "swa_protected_size": "swa_protected",
    "mamba_evictable_size": "mamba_evictable",
    "mamba_protected_size": "mamba_protected",
    "has_ongoing_insert": "has_ongoing_insert",
}


@pytest.mark.parametrize("figure", FIGURES)
def test_every_figure_of_a_tree_is_compared(figure: str) -> None:
    params = CacheInitParams(
        tree_components=(FULL, SWA, ComponentType.MAMBA),
        sliding_window_size=4,
        mamba_cache_chunk_size=1,
    )
    core: Any = Shadowing(second(**{figure: 1}))(params)
    core.reset()
    assert f"(sizes.{FIGURES[figure]})" in core.treedrift_status.last


def test_totals_are_compared_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shadow, "TOTAL_EVERY", 3)
    core: Any = Shadowing(second(total_size=(1, 0)))(CacheInitParams())
    for _ in range(3):
        assert core.treedrift_status.is_on
        core.reset()
    assert "at call 3 (tree.total" in core.treedrift_status.last


def test_sizes_are_compared_after_every_nth_call_that_may_change_them() -> None:
    watched = Shadowing(second(full_evictable_size=7), sizes_every=3)
    core: Any = watched(CacheInitParams())
    for _ in range(3):
        assert watched.status.is_on
        core.has_ongoing_insert()
        core.is_root(core.root_node_handle())
        core.reset()
    assert "at call 12 (sizes.evictable)" in watched.status.last
    core.reset()


@pytest.mark.parametrize("answer", [1, False, 0.0, "0", None, (0,), Panic("native")])
def test_a_figure_is_compared_with_its_type(answer: Any) -> None:
    core: Any = Shadowing(second(evictable_size=answer))(CacheInitParams())
    assert core.evictable_size() == 0
    assert "calls[0].evictable_size." in core.treedrift_status.last
    assert core.treedrift_status.divergences == 1


def test_a_setting_and_a_clearing_reach_the_second_core() -> None:
    made: list[Any] = []

    def make(params: CacheInitParams) -> Any:
        made.append(PythonTreeCore(params))
        return made[-1]

    core: Any = Shadowing(make)(CacheInitParams(enable_kv_cache_events=True))
    core.enable_external_cache_linker = True
    core.kv_events.record_all_cleared()
    assert made[0].enable_external_cache_linker is True
    assert len(core.take_events()) == 1
    assert (core.treedrift_status.compared, core.treedrift_status.is_on) == (3, True)


def test_handles_and_receipts_of_the_first_are_those_of_the_second() -> None:
    core: Any = Shadowing(Apart, strict=True)(CacheInitParams())
    insert(core, 1, 2)
    node = core.match_prefix(MatchPrefixParams(key(1, 2))).last_device_node
    receipt = core.inc_lock_ref(node)
    core.collect_path_info([node])
    core.dec_lock_ref(node, receipt.to_dec_params())
    assert core.treedrift_status.is_on


def test_what_is_gone_is_given_up_and_what_is_held_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shadow, "HANDLES_MIN", 8)
    monkeypatch.setattr(shadow, "RECEIPTS_MIN", 2)
    monkeypatch.setattr(Names, "forget_handles", handles := Counted(Names.forget_handles))
    monkeypatch.setattr(Names, "forget_receipts", receipts := Counted(Names.forget_receipts))
    for profile in ("full", "swa", "hybrid"):
        watched = Shadowing(RustTreeCore, strict=True)
        for config, ops in cases(profile, 6, hostile=False):
            assert observations(watched, config, ops) == observations(PythonTreeCore, config, ops)
            assert watched.status.is_on, watched.status.last
    assert handles.given_up > 100
    assert receipts.given_up > 20


def test_a_receipt_is_followed_however_many_came_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shadow, "RECEIPTS_MIN", 4)
    windows = CacheInitParams(tree_components=(FULL, SWA), sliding_window_size=1)
    core: Any = Shadowing(Apart, strict=True)(windows)

    def lock(*tokens: int) -> Any:
        node = insert(core, *tokens)
        receipt = core.inc_lock_ref(node).to_dec_params()
        assert receipt.component_lock_uuids[SWA] is not None
        return node, receipt

    oldest, twin = lock(1, 2, 3), lock(1, 2, 3)
    core.dec_lock_ref(*twin)
    early = []
    for token in range(10, 30):
        early.append(lock(token, token, token))
        core.dec_lock_ref(*early[-1])
    core.dec_lock_ref(*oldest)
    assert core.treedrift_status.is_on
    with pytest.raises(UnknownNameError):
        core.dec_lock_ref(*early[0])
    assert (core.treedrift_status.divergences, core.treedrift_status.faults) == (0, 1)


def test_a_receipt_is_held_whatever_else_is_released(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shadow, "RECEIPTS_MIN", 4)

    class Rewinding(PythonTreeCore):
        """Each lock of a window has the number of its turn since the last reset."""

        turn = 0

        def inc_lock_ref(self, node_id: int, *args: Any) -> Any:
            self.turn += 1
            return IncLockRefResult(0, node_id, component_lock_uuids={SWA: self.turn})

        def dec_lock_ref(self, *args: Any) -> Any:
            return DecLockRefResult()

        def reset(self) -> None:
            self.turn = 0
            super().reset()

    core: Any = Shadowing(Rewinding, Rewinding, strict=True)(CacheInitParams())
    root = core.root_node_handle()
    dead = core.inc_lock_ref(root).to_dec_params()
    core.reset()
    core.dec_lock_ref(root, dead)  # It has the number of the next one.
    held = core.inc_lock_ref(root).to_dec_params()
    state_alone = DecLockRefParams(root, (FULL, SWA), held.component_lock_uuids)
    core.dec_lock_ref(root, state_alone)
    for _ in range(10):
        core.dec_lock_ref(root, core.inc_lock_ref(root).to_dec_params())
    core.dec_lock_ref(root, held)
    assert core.treedrift_status.is_on


def test_a_handle_that_no_call_told_is_no_difference_of_the_cores() -> None:
    first = PythonTreeCore(CacheInitParams())
    node = insert(first, 1, 2)
    core: Any = Shadowing(RustTreeCore, lambda params: first)(CacheInitParams())
    core.inc_full_pin(node)
    status = core.treedrift_status
    assert (status.divergences, status.faults, status.is_on) == (0, 1, False)
    assert f"no call told of the handle {node}" in status.last


def test_a_strict_shadow_raises_after_it_has_reported(caplog: pytest.LogCaptureFixture) -> None:
    core: Any = Shadowing(second(is_root=False), strict=True)(CacheInitParams())
    with pytest.raises(ShadowDivergenceError, match=r"is_root\.result.*True.*False") as caught:
        core.is_root(core.root_node_handle())
    assert caught.value.divergence.where == "calls[0].is_root.result"
    assert str(caught.value) == core.treedrift_status.last
    assert core.treedrift_status.last.endswith("names no folder. It is raised")
    assert core.treedrift_status.last in caplog.text
    assert core.is_root(core.root_node_handle())


def test_a_soft_difference_is_told_once_and_the_shadow_goes_on() -> None:
    core: Any = Shadowing(second(rotation_phase_of=5), strict=True)(CacheInitParams())
    for _ in range(3):
        core.rotation_phase_of(core.root_node_handle())
    status = core.treedrift_status
    assert (status.soft, status.divergences, status.is_on) == (1, 0, True)
    assert "are in the same state" in status.last


def test_results_in_any_order_are_sorted_where_a_core_leaves_it_open() -> None:
    flat = torch.tensor([2, 1])
    for name, is_on in (("sglang-rust@0.5.23", True), ("rust", False)):
        watched = Shadowing(
            second(all_values_flatten=flat), make_reporter=lambda name=name: Reporter((name, "x"))
        )
        core: Any = watched(CacheInitParams())
        insert(core, 1, 2)
        assert core.all_values_flatten().tolist() == [1, 2]
        assert watched.status.is_on is is_on


def test_node_objects_are_not_compared() -> None:
    core: Any = Shadowing(second(node_by_id=1))(CacheInitParams())
    with pytest.raises(UnsupportedError):
        core.node_by_id(core.root_node_handle())
    assert (core.treedrift_status.calls, core.treedrift_status.compared) == (2, 1)


class Counted:
    """A method that also counts the items that it is given."""

    def __init__(self, method: Any) -> None:
        self.given_up = 0
        self._method = method

    def __get__(self, names: Names, kind: type) -> Any:
        def call(numbers: list[int]) -> None:
            self.given_up += len(numbers)
            self._method(names, numbers)

        return call


@pytest.mark.parametrize("ending", ["divergence", "end of the cache"])
def test_a_second_core_is_given_back_with_the_last_that_needs_it(ending: str) -> None:
    made: list[weakref.ref[Any]] = []

    def make(params: CacheInitParams) -> Any:
        core = second(is_root=False)(params)
        made.append(weakref.ref(core))
        return core

    core: Any = Shadowing(make)(CacheInitParams())
    early = core.match_prefix
    early(MatchPrefixParams(key(1)))
    if ending == "divergence":
        core.is_root(core.root_node_handle())
    else:
        del core, early
    gc.collect()
    assert made[0]() is None
