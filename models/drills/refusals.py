"""Drills of refusals: calls that must fail, how they fail, and what they leave behind."""

from __future__ import annotations

from typing import Any

import torch

from treedrift.backends.contract import (
    ContractError,
    IncLockRefResult,
    InsertResult,
    InsertStepResult,
    InvalidArgumentError,
    UnknownNodeError,
)

from .drill import Theme, after, before

drill = Theme()


@drill("LOCK-8", "the wrong class of error")
def error_of_another_class(core: Any) -> None:
    """A receipt of another node is called a bad value."""
    release = core.dec_lock_ref

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return release(*args, **kwargs)
        except ContractError as error:
            raise InvalidArgumentError(str(error)) from None

    core.dec_lock_ref = call


@drill("BND-45", "a change before a check")
def refusal_that_changes(core: Any) -> None:
    """A refused release has touched the node before it is refused."""
    release = core.dec_lock_ref

    def call(node: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return release(node, *args, **kwargs)
        except ContractError:
            core._tree.touch(core._tree.nodes[node])
            raise

    core.dec_lock_ref = call


@drill("BND-45", "a change before a check")
def refused_insert_touches_the_root(core: Any) -> None:
    """An insert touches the root before it looks at its arguments."""
    before(core, "begin_insert", lambda *_: core._tree.touch(core._tree.root))


@drill("BND-31", "an absent thing gives a default")
def dead_node_locked(core: Any) -> None:
    """A lock of a node that is gone succeeds and does nothing."""
    lock = core.inc_lock_ref

    def call(node_id: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return lock(node_id, *args, **kwargs)
        except UnknownNodeError:
            return IncLockRefResult(node_id=node_id, delta=0)

    core.inc_lock_ref = call


@drill("BND-31", "a list is checked while it is walked")
def unknown_handles_left_out(core: Any) -> None:
    """A question about several nodes leaves out those that are gone."""
    collect = core.collect_path_info

    def call(node_ids: Any) -> Any:
        try:
            return collect(node_ids)
        except UnknownNodeError:
            return collect([node_id for node_id in node_ids if node_id in core._tree.nodes])

    core.collect_path_info = call


@drill("EVD-1", "a check is forgotten")
def second_walk_accepted(core: Any) -> None:
    """A walk that is opened while another one is open takes its place."""

    def first(component: Any, count: Any) -> None:
        if type(count) is int and 0 <= count < 2**64:
            core._tree.full.close_walk()

    before(core, "evict_device_start", first)


@drill("EVD-3", "a check is forgotten")
def end_without_a_walk(core: Any) -> None:
    """Closing a walk that is not open is no error."""
    end = core.evict_device_end

    def call(component: Any) -> None:
        try:
            end(component)
        except ContractError:
            if core._find_component(component) is None:
                raise

    core.evict_device_end = call


@drill("INS-1", "a check is forgotten")
def second_insert_takes_over(core: Any) -> None:
    """An insert that begins while another one is suspended drops that one."""
    before(core, "begin_insert", lambda params: setattr(core, "_insert", None))


@drill("INS-3", "an absent thing gives a default")
def resume_of_nothing(core: Any) -> None:
    """Going on with an insert that is not there gives an empty result."""
    resume = core.resume_insert

    def call() -> Any:
        if core._insert is None:
            return InsertStepResult([], InsertResult(0))
        return resume()

    core.resume_insert = call


@drill("EVD-23", "an argument is trusted")
def mode_of_the_caller(core: Any) -> None:
    """A leaf is evicted in the mode that the caller names, whatever the core's own."""
    evict = core.evict_device_leaf

    def call(node_id: Any, is_write_back: Any) -> Any:
        own = core._tree.settings.is_write_back
        if isinstance(is_write_back, bool):
            core._tree.settings.is_write_back = is_write_back
        try:
            return evict(node_id, is_write_back)
        finally:
            core._tree.settings.is_write_back = own

    core.evict_device_leaf = call


@drill("EVD-17", "a check is forgotten")
def locked_leaf_evicted(core: Any) -> None:
    """A leaf is evicted although it is locked."""
    check = core._check_device_leaf

    def call(node: Any) -> None:
        if node.children or node is core._tree.root:
            check(node)

    core._check_device_leaf = call


@drill("BND-27", "a value is converted that must be refused")
def slots_converted(core: Any) -> None:
    """Slots that are no 64-bit integers are converted."""

    def first(params: Any) -> None:
        if isinstance(params.value, torch.Tensor):
            params.value = params.value.to(torch.int64)

    before(core, "begin_insert", first)


@drill("INS-71", "a habit of another core")
def negative_lengths_are_zero(core: Any) -> None:
    """A negative length of an insert counts as none."""

    def first(params: Any) -> None:
        for name in ("prev_prefix_len", "inserted_len"):
            value = getattr(params, name)
            if type(value) is int and value < 0:
                setattr(params, name, 0)

    before(core, "begin_insert", first)


@drill("BND-24", "a value is converted that must be refused")
def truthy_flags(core: Any) -> None:
    """A flag may be anything that is true or false."""

    def convert(name: str, *places: int) -> None:
        method = getattr(core, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            changed = [bool(arg) if place in places else arg for place, arg in enumerate(args)]
            return method(*changed, **kwargs)

        setattr(core, name, call)

    convert("evict_device_leaf", 1)
    convert("dec_lock_ref", 2)
    convert("walk_for_kv_canary", 0, 1)
    convert("snapshot_buffer_backup", 1)
    convert("build_storage_backup_spec", 1)
    convert("finish_external_linker_offload", 2)


@drill("CHK-18", "a check is forgotten")
def sanity_check_sees_nothing(core: Any) -> None:
    """The sanity check is always content, and the sizes that it should check drift."""

    def then(value: Any, node: Any) -> Any:
        core._tree.full.protected += 1
        return value

    after(core._tree.full, "evict_device", then)
    core.sanity_check = lambda write_through, load_back: None


@drill("CHK-19", "an argument is ignored")
def transfers_not_checked(core: Any) -> None:
    """The sanity check does not look at the nodes of transfers in flight."""
    check = core.sanity_check
    core.sanity_check = lambda write_through, load_back: check([], [])
