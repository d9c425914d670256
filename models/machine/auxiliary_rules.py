"""Rules about windows and Mamba states that keep the protocol: single calls of the core.

Every rule stands for a step that only trees with such components have, so that none is tried in
others.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import MultipleResults, precondition, rule

from treedrift.harness import ops

from .. import auxiliary_steps
from .base import HANDLES, NODES, Handle, TreeMachine, made_by, of, on
from .core_rules import LOCKS, CoreRules, Node, Serial


def is_walking(machine: TreeMachine) -> bool:
    """Whether a walk of windows or states is open."""
    return bool(machine.walks - {"full"})


class AuxiliaryRules(CoreRules):
    """Calls about windows and states, and those that show what became of them."""

    # --- Both -----------------------------------------------------------------------------

    @on("aux_walk")
    @rule(component=of("auxiliary"), count=of("amounts"), victims=st.integers(0, 3))
    def auxiliary_walk_start(self, component: ops.ComponentName, count: int, victims: int) -> None:
        """A walk of windows or states is opened, and its first victims go."""
        if component not in self.walks:
            step: tuple[ops.AnyOp, ...] = (ops.WalkNext(component), ops.EvictLeaf())
            self.run(ops.WalkStart(count, component), *step * victims)

    @on("aux_walk")
    @precondition(is_walking)
    @rule(component=of("auxiliary"), evicts=st.sampled_from((True, True, False)))
    def auxiliary_walk_next(self, component: ops.ComponentName, evicts: bool) -> None:
        """One step of a walk; a leaf that it offers is evicted, or not."""
        self.run(ops.WalkNext(component), *([ops.EvictLeaf()] if evicts else []))

    @on("aux_walk")
    @precondition(is_walking)
    @rule(component=of("auxiliary"))
    def auxiliary_walk_end(self, component: ops.ComponentName) -> None:
        """A walk is closed."""
        self.run(ops.WalkEnd(component))

    @on("store")
    @rule(node=NODES, component=of("auxiliary"))
    def store(self, node: Node, component: ops.ComponentName) -> None:
        """A value for a node that lacks it."""
        self.run(ops.StoreValue(self.ref(node), component))

    @on("pressed")
    @rule(shortfalls=of("shortfalls"))
    def press(self, shortfalls: tuple[int, int, int]) -> None:
        """Windows and states go while Full tokens stay."""
        self.run(ops.Evict(0, *shortfalls[1:]))

    # --- Windows --------------------------------------------------------------------------

    @on("recover")
    @rule(
        target=HANDLES,
        key=of("keys"),
        namespace=of("namespaces"),
        gone=of("gone"),
        owned=st.just(0) | of("cuts"),
    )
    def insert_without_window(
        self, key: list[int], namespace: ops.Namespace, gone: dict[str, Any], owned: int
    ) -> MultipleResults[Handle]:
        """A key that has lost a part of its window."""
        insert = ops.CoreInsert(key, namespace, owned=owned, **gone)
        insert.track_adopted_ranges = bool(owned)
        self.run(insert)
        return self.new_handles()

    @on("recover")
    @rule(target=HANDLES, key=of("keys"), again=of("gone"))
    def recover(self, key: list[int], again: dict[str, Any]) -> MultipleResults[Handle]:
        """A key without any window, and the same key with some of it."""
        gone: dict[str, Any] = dict.fromkeys(again, len(key))
        self.run(ops.CoreInsert(key, **gone), ops.CoreInsert(key, **again))
        return self.new_handles()

    @on("release_window")
    @rule(lock=LOCKS)
    def release_window(self, lock: Serial) -> None:
        """A lock gives its window up."""
        self.run(ops.ReleaseWindow(self.place("lock", lock)))

    @on("window_locks")
    @precondition(lambda machine: "aux_swa" in machine.config.components)
    @precondition(lambda machine: not machine.config.has_states)
    @rule(lock=LOCKS)
    def release_second_window(self, lock: Serial) -> None:
        """A lock gives its second window up and keeps the first."""
        self.run(ops.ReleaseWindow(self.place("lock", lock), "aux_swa"))

    @on("ranges")
    @rule(steps=made_by(auxiliary_steps.ranges))
    def ranges(self, steps: list[ops.AnyOp]) -> None:
        """Which parts of a key lack their window."""
        self.run(*steps)

    @on("attach")
    @rule(
        target=HANDLES,
        key=of("keys"),
        which=st.integers(0, 2),
        start=of("cuts"),
        size=st.none() | of("lengths"),
        component=of("windows"),
    )
    def attach(
        self,
        key: list[int],
        which: int,
        start: int,
        size: int | None,
        component: ops.ComponentName,
    ) -> MultipleResults[Handle]:
        """A window that is missing is loaded, or a part of it."""
        end = None if size is None else start + size
        self.run(ops.AttachWindow(key, which, start, end, component=component))
        return self.new_handles()

    # --- Mamba states ---------------------------------------------------------------------

    @on("capped")
    @rule(target=HANDLES, key=of("keys"), pages=st.lists(st.integers(1, 3), max_size=4))
    def grow(self, key: list[int], pages: list[int]) -> MultipleResults[Handle]:
        """A path with a state at several depths."""
        ends = [self.config.page_size * sum(pages[: number + 1]) for number in range(len(pages))]
        self.run(*(ops.CoreInsert(key[:end]) for end in ends), ops.CoreInsert(key))
        return self.new_handles()

    @on("cap_path")
    @rule(node=NODES)
    def cap_path(self, node: Node) -> None:
        """The cap is applied to the path of a node."""
        self.run(ops.CapPath(self.ref(node)))

    @on("refill")
    @rule(target=HANDLES, key=of("keys"), states=of("states"))
    def refill(self, key: list[int], states: int) -> MultipleResults[Handle]:
        """States go, and a key comes again with one."""
        self.run(ops.CoreInsert(key), ops.Evict(0, 0, states), ops.CoreInsert(key))
        return self.new_handles()
