"""The part of the reference model that follows locks: what each of them holds, and for how long.

FULL is held along the whole path, a window up to the first node with which it is covered, a state
on its own node alone. Which pages a window lock holds is settled when it is taken: no split
changes it (SWA-V8).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..backends.contract import ComponentType, DecLockRefParams, NodeId
from .model_memory import FULL, ModelMemory, named, short
from .prefixes import MAMBA, Page

SWA = ComponentType.SWA


class LockModel(ModelMemory):
    """Follows device locks and pins."""

    def _inc_lock(
        self, result: Any, node_id: NodeId, skip_lock_components: Sequence[ComponentType] = ()
    ) -> None:
        is_skipped = FULL in skip_lock_components
        taken = [kind for kind in self._kinds if kind not in skip_lock_components]
        self._has_loose_locks |= is_skipped and bool(taken)
        self._lock_others(result, node_id, taken)
        moved = None if is_skipped else self._lock(node_id, 1)
        if is_skipped or moved is not None:
            self._expect("delta of a lock", result.delta, moved)

    def _dec_lock(
        self, result: Any, node_id: NodeId, params: DecLockRefParams, skip_swa: bool = False
    ) -> None:
        skipped = {*params.skipped_lock_components}
        if skip_swa and SWA in self._kinds:
            skipped |= {SWA, MAMBA}  # What an early release gave back is not held any more.
        self._unlock_others(node_id, params, [one for one in self._kinds if one not in skipped])
        if FULL not in skipped:
            self._lock(node_id, -1)

    def _lock(self, node_id: NodeId, change: int) -> int | None:
        """Locks of a node come or go; the units that became protected, None where unknown."""
        self._quotas.clear()
        known, end = self._prefixes, self._ends.get(node_id)
        if end is None:
            # Even a lock of FULL alone decides how a window is recovered (SWA-I7).
            self.is_lost |= bool(self._windows)
            self._unplaced[node_id] += change
            if not self._unplaced[node_id]:
                del self._unplaced[node_id]
            return None
        if not end.slots and end is not known.root:
            self._find(f"a lock of a prefix of {end.length} units that was given back")
        before = known.protected
        known.guard(end, change)
        return None if self._unplaced else known.protected - before

    # --- Windows and states ---------------------------------------------------------------

    def _lock_others(self, result: Any, node_id: NodeId, kinds: list[ComponentType]) -> None:
        self._quotas.clear()
        end = self._ends.get(node_id)
        if end is None:
            self.is_lost |= bool(kinds)
            return
        for kind in self._kinds:
            told = kind in result.component_lock_uuids
            must = kind in self._windows and kind in kinds
            self._expect(f"whether a receipt has a window of {named(kind)}", told, must)
            if kind in self._windows and kind in kinds:
                self._lock_window(kind, end, result.component_lock_uuids.get(kind))
            elif kind in kinds and end is not self._prefixes.root:
                self._prefixes.hold(end, kind, 1)

    def _lock_window(self, kind: ComponentType, end: Page, mark: int | None) -> None:
        """Hold whole nodes upward until the window is covered; the last one is marked (SWA-L1)."""
        known, page, top, covered = self._prefixes, end, end, 0
        while page.before is not None and covered < self._windows[kind]:
            node = known.node_of(page)
            for one in node:
                known.hold(one, kind, 1)
            covered += len(node) * known.page_size
            top = node[0]
            page = top.before or known.root
        if covered < self._windows[kind]:
            self._expect("the boundary of a window that reaches the root", mark, None)
        elif mark is None or top.marks.setdefault(kind, mark) != mark:
            self._find(f"the boundary of a window is {mark}, must be {top.marks.get(kind, 'one')}")

    def _unlock_others(
        self, node_id: NodeId, params: DecLockRefParams, kinds: list[ComponentType]
    ) -> None:
        self._quotas.clear()
        end = self._ends.get(node_id)
        if end is None:
            self.is_lost |= bool(kinds)
            return
        for kind in kinds:
            if kind in self._windows:
                self._unlock_window(kind, end, params.component_lock_uuids.get(kind))
            elif end is not self._prefixes.root:
                self._let_go(kind, end)

    def _unlock_window(self, kind: ComponentType, end: Page, mark: int | None) -> None:
        """Let go of each page up to the one where the receipt's boundary is (SWA-L7)."""
        page: Page | None = end
        while page is not None and page.before is not None and not self.is_lost:
            self._let_go(kind, page)
            page = None if mark is not None and page.marks.get(kind) == mark else page.before
        if page is not None and mark is not None:
            self.is_lost = True  # A stale receipt was accepted: whose locks it took is not known.

    def _let_go(self, kind: ComponentType, page: Page) -> None:
        if not page.held[kind]:
            self._find(f"a release of {named(kind)} at {page.length} units, where nobody holds it")
        self._prefixes.hold(page, kind, -1)

    # --- Early releases -------------------------------------------------------------------

    def _dec_swa(self, result: Any, node_id: NodeId, params: DecLockRefParams) -> None:
        self._dec_window(result, node_id, SWA, params, with_states=True)

    def _dec_window(
        self,
        result: Any,
        node_id: NodeId,
        component_type: ComponentType,
        params: DecLockRefParams,
        with_states: bool = False,
    ) -> None:
        """A window goes early, and at once where nothing else needs it (SWA-L11, SWA-L13)."""
        end, skipped = self._ends.get(node_id), params.skipped_lock_components
        is_left_out = component_type in skipped and not with_states
        kinds = [component_type] if component_type in self._windows and not is_left_out else []
        self._unlock_others(node_id, params, kinds)
        if end is None or self.is_lost:
            return
        must = bool(kinds) and component_type in end.values and not end.is_kept
        freed = result.device_frees.get(component_type, ())
        if not self._unplaced:
            self._expect("whether a release gives up its window", bool(freed), must)
        for slots in freed:
            self._give_up_window(component_type, slots.tolist())
        if with_states and kinds and MAMBA in self._kinds and MAMBA not in skipped:
            self._unlock_others(node_id, params, [MAMBA])

    def _give_up_window(self, kind: ComponentType, run: list[int]) -> Page | None:
        """A node loses its window; what is freed are its FULL slots (SWA-E10)."""
        node = self._pages_of(run)
        if node is None:
            self._find(f"a window of slots {run} is given up, which are those of no node")
        elif any(kind not in page.values for page in node):
            self._find(f"{named(kind)} frees slots {short(run)}, whose window is gone already")
        elif any(page.held[kind] for page in node):
            self._find(f"{named(kind)} frees slots {short(run)}, whose window is locked")
        else:
            for page in node:
                self._prefixes.take(page, kind)
            return node[-1]
        return None
