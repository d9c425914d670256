"""The part of the reference model that follows evictions: what may go, and in which company.

A leaf goes with all that it has; above the leaves a window or a state goes alone, or with what
depends on it (SWA-E8).
"""

from __future__ import annotations

from typing import Any

from ..backends.contract import ComponentType, EvictionResult, NodeId
from .model_locks import LockModel
from .model_memory import FULL, named, short
from .prefixes import MAMBA, Page


class EvictionModel(LockModel):
    """Follows walks, evicted leaves and the cap of a path's states."""

    def _start_walk(self, result: None, component_type: ComponentType, request_cnt: int) -> None:
        self._quotas[component_type] = request_cnt
        self._offered.pop(component_type, None)

    def _end_walk(self, result: None, component_type: ComponentType) -> None:
        self._quotas.pop(component_type, None)

    def _offer(self, result: Any, component_type: ComponentType, tracker: Any) -> None:
        """A walk offers or gives up what it may, up to its quota, and all of it if undisturbed."""
        page = self._ends.get(result.node_id)
        if page is not None and (page.is_kept or not page.slots):
            self._find(f"a walk offers a prefix of {page}")
        if self._offered.pop(component_type, None) is not None:
            self._quotas.pop(component_type, None)  # What is not taken comes no more (EVD-9).
        goes_on = result.node_id is not None or bool(result.device_frees)
        self._check_quota(component_type, goes_on, tracker.get(component_type, 0))
        if result.node_id is not None:
            self._offered[component_type] = result.node_id
        self._expect("made_progress", result.made_progress, goes_on)
        self._give_up(component_type, result)

    def _check_quota(self, kind: ComponentType, goes_on: bool, evicted: int) -> None:
        quota, left = self._quotas.get(kind), self._left(kind)
        if quota is None:
            return
        if goes_on and evicted >= quota:
            self._find(f"a walk for {quota} units offers more after {evicted}")
        elif not goes_on and evicted < quota and left and not self._unplaced:
            self._find(f"a walk ends after {evicted} units, although {left} can be evicted")

    def _left(self, kind: ComponentType) -> int:
        """Units that a walk can still reach; of FULL unless a lock without FULL may hold them."""
        known = self._prefixes
        if kind is FULL:
            return 0 if self._has_loose_locks else known.resident - known.protected
        return known.stored[kind] - known.locked[kind]

    # --- Above the leaves -----------------------------------------------------------------

    def _give_up(self, kind: ComponentType, result: Any) -> None:
        """One node loses a window or a state, and what must go with it (SWA-E6, MAM-E6)."""
        if not result.device_frees:
            self._give_back(result)
            return
        self._count(result)
        for other in [one for one in self._quotas if one is not kind]:
            del self._quotas[other]
        runs = [slots.tolist() for slots in result.device_frees.get(kind, ())]
        self._expect("number of nodes that a step gives up", len(runs), 1)
        if kind is FULL or self.is_lost:
            return
        end = self._lose(kind, runs[0])
        if end is None:
            return
        if not end.is_kept and not self._unplaced:
            self._find(f"{named(kind)} of a leaf of {end.length} units goes without its leaf")
        for other in self._kinds:
            told = [slots.tolist() for slots in result.device_frees.get(other, ())]
            if other is not kind:
                self._lose_along(kind, other, end, told)

    def _lose(self, kind: ComponentType, run: list[int]) -> Page | None:
        return self._lose_state(run) if kind is MAMBA else self._give_up_window(kind, run)

    def _lose_along(
        self, kind: ComponentType, other: ComponentType, end: Page, told: list[list[int]]
    ) -> None:
        """A state goes with a window, and a window with another one unless it is locked."""
        goes = kind is not MAMBA and other in end.values and not end.held[other]
        self._expect(f"whether {named(other)} goes with {named(kind)}", bool(told), goes)
        if goes and not self.is_lost:
            lost = self._lose(other, told[0])
            if lost is not end:
                self._find(f"{named(other)} of another node goes with {named(kind)}")

    def _lose_state(self, run: list[int]) -> Page | None:
        page = self._prefixes.state_owner(run[0]) if len(run) == 1 else None
        if page is None:
            self._find(f"a state {run} is freed, which no prefix has")
        elif page.held[MAMBA]:
            self._find(f"the state of a prefix of {page.length} units is freed under its lock")
        else:
            self._prefixes.take(page, MAMBA)
            return page
        return None

    # --- Leaves ---------------------------------------------------------------------------

    def _evict_leaf(self, result: Any, node_id: NodeId, is_write_back: bool) -> None:
        asks, count = result.backup_kv is not None, result.tracker.get(FULL, 0)
        self._evicted(result, node_id, not asks)
        self._expect("whether an eviction asks for a backup", asks, is_write_back)
        self._expect("unbacked_tokens of an eviction", result.unbacked_tokens, count)

    def _drop(self, result: Any, node_id: NodeId) -> None:
        self._evicted(result, node_id, result.is_dropped)

    def _evicted(self, result: EvictionResult, node_id: NodeId, is_gone: bool) -> None:
        self._give_back(result)
        page = self._ends.get(node_id)
        if page is not None and bool(page.slots) == is_gone:
            answer = "kept" if is_gone else "gave back"
            self._find(f"an eviction {answer} a prefix of {page.length} units")
        for kind in list(self._quotas):
            if self._offered.get(kind) != node_id:
                del self._quotas[kind]
            elif is_gone:
                del self._offered[kind]

    def _give_back(self, result: EvictionResult, *arguments: Any) -> None:
        """What an eviction frees is resident, and neither held nor followed by other pages."""
        self._count(result)
        for kind in self._kinds:
            for slots in result.device_frees.get(kind, ()):
                self._lose(kind, slots.tolist())
        for slots in result.device_frees.get(FULL, ()):
            self._give_run_back(slots.tolist())

    def _count(self, result: EvictionResult) -> None:
        for kind in (FULL, *self._kinds):
            freed = sum(len(slots) for slots in result.device_frees.get(kind, ()))
            told = result.tracker.get(kind, 0)
            if told != freed:
                self._expect(f"tracker of an eviction for {named(kind)}", told, freed)

    def _give_run_back(self, run: list[int]) -> None:
        size, following = self._prefixes.page_size, None
        for end in range(len(run), 0, -size):
            page = self._prefixes.owner(run[max(end - size, 0) : end])
            if page is None or (following is not None and following.before is not page):
                self._find(f"an eviction frees slots {short(run)}, which are no part of a prefix")
            elif page.is_kept:
                self._find(f"an eviction frees the last page of a prefix of {page}")
            elif page.values:
                kept = ", ".join(map(named, page.values))
                self._find(f"an eviction frees a prefix of {page.length} units without its {kept}")
            if page is None or self.is_lost:
                return
            self._prefixes.remove(page)
            following = page

    # --- The cap of a path ----------------------------------------------------------------

    def _cap_path(
        self,
        result: None,
        tail_node_id: NodeId,
        device_frees: Any,
        host_frees: Any,
        cache_actions: Any,
    ) -> None:
        """States beyond the cap go from the top down, but for forks, locked ones and the tail."""
        self._quotas.clear()
        tail = self._ends.get(tail_node_id)
        if tail is None:
            self.is_lost = True
            return
        told = [slots.tolist() for slots in device_frees.get(MAMBA, ())]
        excess = self._excess(tail)
        expected = [page.values[MAMBA] for page in excess]
        if told != expected:
            self._find(f"a path's cap frees states {short(told)}, must free {short(expected)}")
        for page in excess:
            self._prefixes.take(page, MAMBA)

    def _excess(self, tail: Page) -> list[Page]:
        """The states that the cap of this path removes (MAM-P6)."""
        cap, path = self._config.state_cap, [tail]
        while (before := path[-1].before) is not None:
            path.append(before)
        having = [page for page in reversed(path) if MAMBA in page.values]
        may_go = [
            page
            for page in having
            if page is not tail and page.followers == 1 and not page.held[MAMBA]
        ]
        return may_go[: max(len(having) - cap, 0)] if cap >= 0 else []
