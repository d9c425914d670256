"""What a request does about its Mamba states: where it starts, what it tracks, what it leaves.

It hides who owns which state slot, from arrival to release (MAM-M15 to MAM-M18, MAM-R4 to MAM-R20).
"""

from __future__ import annotations

import msgspec
import torch

from treedrift.backends.contract import ComponentType, DecLockRefParams, NodeId
from treedrift.backends.pools import NO_SLOT, StatePool

from .controller import Controller
from .findings import CacheError, OracleFinding
from .requests import Request, Tracking

MAMBA = ComponentType.MAMBA


class Offer(msgspec.Struct, eq=False):
    """A state for the tree: the depth that it stands for and its slot, or nothing.

    `keep` is the entry of the buffer that goes to the tree with the last insert (MAM-R9).
    """

    depth: int = 0
    slot: torch.Tensor | None = None
    keep: int | None = None


class StateSide:
    """The states of all requests of one cache."""

    def __init__(self, controller: Controller, pool: StatePool) -> None:
        self._controller = controller
        self._pool = pool
        self._buffer = controller.config.state_buffer
        self._grid = controller.config.state_grid

    # --- Admission ------------------------------------------------------------------------

    def source(self, node_id: NodeId) -> torch.Tensor | None:
        """The cached state of the node that a match ended on (MAM-M15)."""
        state = self._controller.core.get_component_device_value(node_id, MAMBA)
        if state is not None and state.numel() != 1:
            raise CacheError(f"a node has a state of {state.numel()} slots")
        return state

    def slot_for_copy(self, node_id: NodeId) -> torch.Tensor | None:
        """A slot for a copy of a node's state; the node is locked while others go (MAM-M16)."""
        slot = self._pool.alloc(1)
        if slot is not None:
            return slot
        pin = self._controller.lock(node_id)
        try:
            return self._controller.allocate_state()
        finally:
            self._controller.unlock(pin)

    def bind(
        self, own: torch.Tensor | None, source: torch.Tensor | None, branch: int | None
    ) -> Tracking | None:
        """The slots of a new request, evicting if need be (MAM-R4, MAM-R20); None: short."""
        entries = {"none": 0, "single": 1, "double": 2, "lazy": 1}[self._buffer]
        self._controller.make_room({MAMBA: entries + (own is None)})
        slots = self._pool.bind(self._buffer, None if own is None else int(own))
        return None if slots is None else Tracking(slots, source, branch)

    def give_back(self, slot: torch.Tensor | None) -> None:
        """A slot that a request took and can't use."""
        if slot is not None:
            self._pool.free(slot)

    # --- Computing tokens -----------------------------------------------------------------

    def start(self, request: Request) -> None:
        """Copy the cached state that the request starts from, if it has not been yet."""
        tracking = request.tracking
        if tracking is not None and tracking.source is not None:
            self._pool.copy(tracking.source, self._own(tracking))
            tracking.source = None
            self._check(request, self._own(tracking), request.computed_len, "starts from")

    def advance(self, request: Request, start: int, end: int, *, each_step: bool) -> None:
        """The model computes tokens `start` to `end`: in one chunk, or step by step."""
        tracking = request.tracking
        if tracking is None:
            return
        self.start(request)
        if start:
            self._check(request, self._own(tracking), start, "goes on from")
        last = end // self._grid * self._grid
        if each_step:
            depths = range(start // self._grid * self._grid + self._grid, end + 1, self._grid)
        elif tracking.branch is not None and start < tracking.branch <= end:
            # A chunk leaves one state: at the branch, where others part, if it passes it.
            depths = range(tracking.branch, tracking.branch + 1)
            tracking.branch = None
        else:
            depths = range(last, last + 1 if last > start else last)
        for depth in depths:
            self._track(request, tracking, depth)
        self._pool.write(self._own(tracking), request.fingerprints[end - 1 : end])

    def _track(self, request: Request, tracking: Tracking, depth: int) -> None:
        """Write the state of a depth to the buffer, if there is one (MAM-R7)."""
        slots = tracking.slots
        if not slots.buffer:
            return
        entry = slots.next_track
        if slots.buffer[entry] == NO_SLOT and not self._fill_late(tracking, entry):
            # No second entry to be had: the state before this one is written over.
            entry = slots.last_track
            tracking.last_depth = None
        content = request.fingerprints[depth - 1 : depth]
        self._pool.write(self._pool.tensor([slots.buffer[entry]]), content)
        is_double = len(slots.buffer) == 2
        tracking.prev_depth = tracking.last_depth if is_double else None
        tracking.last_depth = depth
        slots.last_track = entry
        slots.next_track = 1 - entry if is_double else entry

    def _fill_late(self, tracking: Tracking, entry: int) -> bool:
        slot = self._pool.alloc(1)
        if slot is None:
            return False
        tracking.slots.buffer[entry] = int(slot)
        return True

    # --- Checkpoints ----------------------------------------------------------------------

    def offer(self, request: Request, *, is_finished: bool) -> Offer:
        """The state that goes with the next insert of a request (MAM-R5 to MAM-R9)."""
        tracking = request.tracking
        if tracking is None:
            return Offer()
        self.start(request)
        if is_finished:
            found = self._last_offer(request, tracking)
        elif self._buffer == "none":
            found = self._fork(request, tracking)
        else:
            found = self._donate(request, tracking)
        if found.slot is not None and found.depth:
            self._check(request, found.slot, found.depth, "offers")
        return found

    def _fork(self, request: Request, tracking: Tracking) -> Offer:
        """A copy of the live state (MAM-R6)."""
        if not request.computed_len or (slot := self._slot(request)) is None:
            return Offer()
        self._pool.copy(self._own(tracking), slot)
        return Offer(request.computed_len, slot)

    def _donate(self, request: Request, tracking: Tracking) -> Offer:
        """The last tracked state itself; a fresh slot takes its place (MAM-R7)."""
        depth, slots = tracking.last_depth, tracking.slots
        if depth is None or (fresh := self._slot(request)) is None:
            return Offer()
        given = self._pool.tensor([slots.buffer[slots.last_track]])
        slots.buffer[slots.last_track] = int(fresh)
        return Offer(depth, given)

    def _last_offer(self, request: Request, tracking: Tracking) -> Offer:
        """What a finished request leaves: its own state, or a tracked one (MAM-R8, MAM-R9)."""
        slots, fill = tracking.slots, request.computed_len
        if self._buffer == "none":
            return Offer(fill, self._own(tracking))
        depth, entry = tracking.last_depth or 0, slots.last_track
        if depth > fill:
            if len(slots.buffer) < 2 or tracking.prev_depth is None or tracking.prev_depth > fill:
                return Offer()
            depth, entry = tracking.prev_depth, 1 - entry
        return Offer(depth, self._pool.tensor([slots.buffer[entry]]), entry)

    def _slot(self, request: Request) -> torch.Tensor | None:
        """A slot for a checkpoint, evicting if need be (MAM-R10); None: short."""
        slot = self._pool.alloc(1)
        if slot is not None:
            return slot
        lock = request.lock
        skipped = lock.receipt.skipped_lock_components
        if self._buffer == "lazy" and not lock.window_released and MAMBA not in skipped:
            self._let_state_go(request)
        return self._controller.allocate_state()

    def _let_state_go(self, request: Request) -> None:
        """Release the state of a lock alone, so that it can be evicted (MAM-L11)."""
        receipt = request.lock.receipt
        others = [kind for kind in self._controller.config.component_types() if kind is not MAMBA]
        part = DecLockRefParams(receipt.node_id, tuple(others), receipt.component_lock_uuids)
        self._controller.core.dec_lock_ref(request.lock.node_id, part)
        receipt.skipped_lock_components = (*receipt.skipped_lock_components, MAMBA)

    def settle(self, request: Request, offer: Offer, *, is_taken: bool, is_finished: bool) -> None:
        """An insert is over, or was not made: whose is the offered state (MAM-R12 to MAM-R16)."""
        tracking = request.tracking
        if tracking is None:
            return
        if not is_finished:
            if not is_taken:
                self.give_back(offer.slot)
            tracking.last_depth = tracking.prev_depth = None
            return
        if not is_taken:
            self.release(request)
            return
        if self._buffer != "none":
            self._pool.release(tracking.slots, offer.keep)
        request.tracking = None

    def withdraw(self, request: Request, offer: Offer) -> None:
        """A checkpoint was refused: what it offered is nobody's, unless the tree has it already."""
        if offer.slot is None or request.tracking is None:
            return
        if int(offer.slot) not in self._controller.core.all_mamba_values_flatten().tolist():
            self.give_back(offer.slot)
        request.tracking.last_depth = request.tracking.prev_depth = None

    def release(self, request: Request) -> None:
        """Free all states that a request has (MAM-R16)."""
        if request.tracking is not None:
            self._pool.release(request.tracking.slots)
            request.tracking = None

    # --- Content --------------------------------------------------------------------------

    def check_row(self, request: Request) -> None:
        """The live state must still be that of the last computed token."""
        tracking = request.tracking
        if tracking is not None and tracking.source is None and request.computed_len:
            self._check(request, self._own(tracking), request.computed_len, "has")

    def _own(self, tracking: Tracking) -> torch.Tensor:
        return self._pool.tensor([tracking.slots.own])

    def _check(self, request: Request, slot: torch.Tensor, depth: int, verb: str) -> None:
        if not self._pool.holds(slot, request.fingerprints[depth - 1 : depth]):
            message = f"a request {verb} the state in slot {int(slot)}, not one of {depth} tokens"
            self._controller.findings.append(OracleFinding("state_content", message))
