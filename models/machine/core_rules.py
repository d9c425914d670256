"""Rules of the core level that keep the protocol: single calls of the core.

A lock, pin or walk is known by its number in order of taking; a trace names it by its place
among those that are held.
"""

from __future__ import annotations

from itertools import count

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, MultipleResults, consumes, multiple, precondition, rule

from treedrift.harness import ops

from .. import core_steps
from .base import HANDLES, NODES, Handle, TreeMachine, made_by, of, on

Serial = int
Node = Handle | ops.NodeRef

LOCKS: Bundle[Serial] = Bundle("locks")
HOST_LOCKS: Bundle[Serial] = Bundle("host_locks")
RECEIPTS: Bundle[Serial] = Bundle("receipts")
PINS: Bundle[Serial] = Bundle("pins")
WALKS: Bundle[Serial] = Bundle("walks")


def is_walking(machine: TreeMachine) -> bool:
    """Whether a walk of the Full component is open."""
    return "full" in machine.walks


def is_inserting(machine: TreeMachine) -> bool:
    """Whether an insert is suspended."""
    return machine.inserting


class CoreRules(TreeMachine):
    """Calls of the core, and what they hand out to be given back."""

    def __init__(self) -> None:
        super().__init__()
        self._held: dict[str, list[Serial]] = {"lock": [], "host": [], "pin": []}
        self._released: list[Serial] = []
        self._numbers = count()

    def forget_references(self) -> None:
        """What was held before the tree was emptied is dead."""
        self._released += self._held["lock"]
        for held in self._held.values():
            held.clear()

    def _took(self, kind: str, method: str) -> MultipleResults[Serial]:
        """The number of what the last op took, if the core gave it."""
        if not self.called(method):
            return multiple()
        number = next(self._numbers)
        self._held[kind].append(number)
        return multiple(number)

    def place(self, kind: str, number: Serial) -> int:
        """The place of what is held among its kind; the first if it is held no more."""
        held = self._held[kind]
        return held.index(number) if number in held else 0

    def _give_back(self, kind: str, number: Serial) -> int:
        """The place of what is given back; it is held no more."""
        place = self.place(kind, number)
        if number in self._held[kind]:
            self._held[kind].remove(number)
        return place

    # --- Matching and inserting -----------------------------------------------------------

    @on("match")
    @rule(target=HANDLES, steps=made_by(core_steps.match))
    def match(self, steps: list[ops.AnyOp]) -> MultipleResults[Handle]:
        """A lookup, sometimes of the device alone or of a capped key."""
        self.run(*steps)
        return self.new_handles()

    @on("insert")
    @rule(target=HANDLES, steps=made_by(core_steps.insert))
    def insert(self, steps: list[ops.AnyOp]) -> MultipleResults[Handle]:
        """An insert with fresh slots, sometimes with every option."""
        self.run(*steps)
        return self.new_handles()

    @on("repeat")
    @rule(target=HANDLES, key=of("keys"), namespace=of("namespaces"), times=st.integers(2, 4))
    def insert_again(
        self, key: list[int], namespace: ops.Namespace, times: int
    ) -> MultipleResults[Handle]:
        """The same key again and again, so that hit counts tell nodes apart."""
        self.run(*[ops.CoreInsert(key, namespace)] * times)
        return self.new_handles()

    @on("suspend")
    @rule(target=HANDLES, key=of("keys"), more=of("some"), hits=st.integers(0, 3))
    def suspend(self, key: list[int], more: list[int], hits: int) -> MultipleResults[Handle]:
        """A node some hits short of the threshold, and an insert that may stop at it."""
        self.run(*[ops.CoreInsert(key)] * hits, ops.CoreInsert([*key, *more], suspend=True))
        return self.new_handles()

    @on("suspend")
    @precondition(is_inserting)
    @rule()
    def resume(self) -> None:
        """One step of the suspended insert."""
        self.run(ops.CoreResume())

    @on("suspend")
    @precondition(is_inserting)
    @rule()
    def abandon(self) -> None:
        """The suspended insert is given up."""
        self.run(ops.CoreEnd())

    # --- Locks and pins -------------------------------------------------------------------

    @on("lock")
    @rule(target=LOCKS, node=NODES, skip=of("skips"))
    def lock(self, node: Node, skip: tuple[ops.ComponentName, ...]) -> MultipleResults[Serial]:
        """A lock; its receipt is kept."""
        self.run(ops.Lock(self.ref(node), list(skip)))
        return self._took("lock", "inc_lock_ref")

    @on("unlock")
    @rule(target=RECEIPTS, lock=consumes(LOCKS))
    def unlock(self, lock: Serial) -> MultipleResults[Serial]:
        """A lock is released by its receipt."""
        self.run(ops.Unlock(self._give_back("lock", lock)))
        if not self.called("dec_lock_ref"):
            return multiple()
        self._released.append(lock)
        return multiple(lock)

    @on("lock")
    @rule(target=HOST_LOCKS, node=NODES)
    def host_lock(self, node: Node) -> MultipleResults[Serial]:
        """A lock of the host tier."""
        self.run(ops.Lock(self.ref(node), host=True))
        return self._took("host", "inc_host_lock_ref")

    @on("unlock")
    @rule(lock=consumes(HOST_LOCKS))
    def host_unlock(self, lock: Serial) -> None:
        """A lock of the host tier is released."""
        self.run(ops.Unlock(self._give_back("host", lock), host=True))

    @on("pin")
    @rule(target=PINS, node=NODES)
    def pin(self, node: Node) -> MultipleResults[Serial]:
        """A node is pinned."""
        self.run(ops.Pin(self.ref(node)))
        return self._took("pin", "inc_full_pin")

    @on("pin")
    @rule(pin=consumes(PINS))
    def unpin(self, pin: Serial) -> None:
        """A pin is given back."""
        self.run(ops.Pin(release=self._give_back("pin", pin)))

    # --- Walks ----------------------------------------------------------------------------

    @on("walk")
    @precondition(lambda machine: not is_walking(machine))
    @rule(target=WALKS, count=of("amounts"), victims=st.integers(0, 3))
    def walk_start(self, count: int, victims: int) -> Serial:
        """A device walk is opened, and its first victims go."""
        step: tuple[ops.AnyOp, ...] = (ops.WalkNext(), ops.EvictLeaf())
        self.run(ops.WalkStart(count), *step * victims)
        return next(self._numbers)

    @on("walk")
    @precondition(is_walking)
    @rule(target=HANDLES, walk=WALKS, done=st.none() | st.integers(0, 3))
    def walk_next(self, walk: Serial, done: int | None) -> MultipleResults[Handle]:
        """One step of the open walk."""
        self.run(ops.WalkNext(done=done))
        return self.new_handles()

    @on("walk")
    @precondition(is_walking)
    @rule(walk=WALKS)
    def evict_offered(self, walk: Serial) -> None:
        """The next victim of the walk is evicted."""
        self.run(ops.WalkNext(), ops.EvictLeaf())

    @on("walk")
    @precondition(is_walking)
    @rule(walk=WALKS)
    def drop_offered(self, walk: Serial) -> None:
        """What the walk offered last is dropped with all below it."""
        self.run(ops.DropSubtree())

    @on("walk")
    @precondition(is_walking)
    @rule(walk=consumes(WALKS))
    def walk_end(self, walk: Serial) -> None:
        """The walk is closed."""
        self.run(ops.WalkEnd())

    @on("host_evict")
    @rule(count=st.integers(0, 3))
    def host_evict(self, count: int) -> None:
        """Pressure on a host tier that is not there."""
        self.run(ops.HostEvict(count))

    # --- Questions, ledgers, linker and settings ------------------------------------------

    @on("ask")
    @rule(question=made_by(core_steps.ask), nodes=st.lists(NODES, max_size=4))
    def ask(self, question: list[ops.AnyOp], nodes: list[Node]) -> None:
        """A question about a few nodes."""
        (asked,) = question
        assert isinstance(asked, ops.Ask)
        refs = [self.ref(node) for node in nodes]
        self.run(ops.Ask(asked.about, refs, asked.number, asked.flag))

    @on("backfill")
    @rule()
    def backfill(self) -> None:
        """Hashes are filled in."""
        self.run(ops.Backfill())

    @on("adjust_size")
    @rule(node=NODES, delta=st.integers(1, 4))
    def adjust_size(self, node: Node, delta: int) -> None:
        """A ledger moves up and back."""
        self.run(ops.AdjustSize(self.ref(node), delta))

    @on("offload")
    @rule(node=HANDLES)
    def offload(self, node: Handle) -> None:
        """A node goes to the external store."""
        self.run(ops.Offload(self.ref(node)))

    @on("mark_stored")
    @rule(node=NODES)
    def mark_stored(self, node: Node) -> None:
        """The external store has a path already."""
        self.run(ops.MarkStored(self.ref(node)))

    @on("set_flag")
    @rule(steps=made_by(core_steps.set_flag))
    def set_flag(self, steps: list[ops.AnyOp]) -> None:
        """A setting changes between two ops."""
        self.run(*steps)
