"""What a request does about its sliding windows: cursors, early frees, content (SWA-Q1 to SWA-Q4).

It hides which positions of a row still have window KV, and who answers for it.
"""

from __future__ import annotations

import torch

from treedrift.backends.contract import ComponentType, InsertParams, TreeCore
from treedrift.backends.pools import Pools, WindowPool

from ..config import Config
from .findings import OracleFinding
from .requests import Request, WindowShare


class WindowSide:
    """The windows of all requests of one cache; it does nothing where the tree has none."""

    def __init__(
        self, core: TreeCore, config: Config, pools: Pools, findings: list[OracleFinding]
    ) -> None:
        self._core = core
        self._config = config
        self._allocator = pools.allocator
        self._findings = findings
        self._windows = pools.windows
        self._widths = {
            component: config.retain_window
            if component is ComponentType.SWA
            else config.aux_window or 0
            for component in pools.windows
        }
        self.replayed = max(self._widths.values(), default=0) if config.window_replay else 0
        """Tokens at the end of a prompt that are never looked up (SWA-M13)."""

    def admit(self, request: Request, branch: int | None) -> None:
        """A request arrives, and has adopted its prefix."""
        length = request.protected_len
        for component, width in self._widths.items():
            # Without gates a match may end where the window is gone.
            sure = max(0, length - width) if self._config.window_gates else length
            request.windows[component] = WindowShare(sure=sure)
        request.window_branch = branch if self._windows else None
        self.check_path(request)

    # --- Slots ----------------------------------------------------------------------------

    def owned(self, request: Request, component: ComponentType) -> torch.Tensor:
        """Full slots of the row whose window peers are the request's own."""
        start = max(request.windows[component].evicted, request.protected_len)
        return request.slots[start : request.computed_len]

    def write(self, slots: torch.Tensor, fingerprints: torch.Tensor) -> None:
        """New tokens are computed: fill the peers of their slots."""
        for window in self._windows.values():
            window.write(slots, fingerprints)

    def give_up(self, request: Request, reach: int) -> None:
        """Free what no token at or after `reach` looks at (SWA-Q2, CTL-41)."""
        config = self._config
        page = config.page_size
        floor = None if request.tracking is None else request.tracking.last_depth
        for component, width in self._widths.items():
            share = request.windows[component]
            if reach - width < share.evicted + config.window_interval:
                continue
            end = reach - -(-max(width, page) // page) * page
            if floor is not None:
                # The window below the last tracked state goes into the tree with it (MAM-R18).
                end = min(end, floor - width)
            start = share.evicted = max(share.evicted, request.protected_len)
            end = end // page * page
            if end > start:
                self._windows[component].free_peers(request.slots[start:end])
                share.evicted = end

    def release(self, request: Request) -> None:
        """A row is given up: free what is not the tree's, window and full slots (SWA-Q4)."""
        for component, window in self._windows.items():
            window.free_peers(self.owned(request, component))
        start, end = request.protected_len, request.computed_len
        first = request.windows.get(ComponentType.SWA)
        cut = min(max(start, first.evicted), end) if first is not None else start
        for low, high in ((start, cut), (cut, end)):
            if low < high:
                self._allocator.free_full_segment(request.slots[low:high], low)

    # --- Inserts --------------------------------------------------------------------------

    def branch(self, request: Request) -> int | None:
        """Where to cut an insert so that others find a window there (SWA-Q1); units."""
        branch = request.window_branch
        if branch is None or request.tracking is not None or branch <= request.protected_len:
            return None
        extra = 1 if self._config.is_bigram else 0
        return branch if branch + extra <= request.computed_len else None

    def describe(self, request: Request, params: InsertParams, branch: int | None) -> None:
        """Tell an insert what the request has given up (SWA-I1)."""
        params.swa_branching_seqlen = branch
        for component, share in request.windows.items():
            params.set_evicted_seqlen(component, share.evicted)

    def after_branch(self, request: Request, is_finished: bool) -> None:
        """The window at the branch is in the tree (SWA-Q3)."""
        request.window_branch = None
        if not is_finished:
            self.give_up(request, request.computed_len - (2 if self._config.is_bigram else 1))

    def cut(self, request: Request) -> None:
        """An insert was cut at the branch: the tree lacks what was given up before it."""
        for share in request.windows.values():
            share.sure = max(share.sure, share.evicted)

    def distrust(self, request: Request) -> None:
        """The request's lock has let go of the first window: others may take it from the tree."""
        share = request.windows.get(ComponentType.SWA)
        if share is not None:
            share.sure = request.protected_len

    # --- Content --------------------------------------------------------------------------

    def check_row(self, request: Request) -> None:
        """Every window must hold what the request still has of it, and what it reads next."""
        for component in self._widths:
            self._check_peers(request, component, request.computed_len)

    def check_path(self, request: Request) -> None:
        """The tree's part of the row must have its window, as values and as contents."""
        end = request.protected_len
        if not self._windows or not end:
            return
        (path,) = self._core.collect_path_info([request.lock.node_id])
        for component, window in self._windows.items():
            self._check_peers(request, component, end)
            start = self._first_sure(request, component)
            for node in path:
                if max(start, node.path_start) < min(end, node.path_end):
                    slots = request.slots[node.path_start : node.path_end]
                    value = self._core.get_component_device_value(node.node_id, component)
                    self._check_value(component, window, value, slots)

    def _first_sure(self, request: Request, component: ComponentType) -> int:
        """The first position that the request's next token needs and has a right to."""
        share, width = request.windows[component], self._widths[component]
        return max(share.sure, request.protected_len - width, 0)

    def _check_value(
        self,
        component: ComponentType,
        window: WindowPool,
        value: torch.Tensor | None,
        slots: torch.Tensor,
    ) -> None:
        if value is None:
            problem = "has no value"
        elif torch.equal(window.translate(slots), value):
            return
        else:
            problem = "has a value that its slots do not map to"
        message = f"a node that a request needs the {component.name} window of {problem}"
        self._findings.append(OracleFinding("window_mapping", message))

    def _check_peers(self, request: Request, component: ComponentType, end: int) -> None:
        """The request's window of positions before `end`: the tree's part, then its own."""
        window = self._windows[component]
        protected, needed = request.protected_len, end - self._widths[component] + 1
        own = max(min(request.windows[component].evicted, needed), protected)
        spans = [(self._first_sure(request, component), min(protected, end)), (own, end)]
        for start, stop in spans:
            if start >= stop:
                continue
            slots, expected = request.slots[start:stop], request.fingerprints[start:stop]
            if not window.holds(slots, expected):
                found = window.kv.read(window.translate(slots))
                first = start + int((found != expected).nonzero()[0])
                message = f"the {component.name} window holds KV of another prefix at {first}"
                self._findings.append(OracleFinding("window_content", message))
