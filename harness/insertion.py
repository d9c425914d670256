"""What an insert must ask of the cache, told from the pages that are resident.

An `Insertion` walks down its key node by node, as far as it is asked to, and changes the pages as
it goes: it marks where nodes are cut, moves pages to the slots that the tree adopts, and hangs the
new leaf below. Hides how windows clip and cap what they recover.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from ..backends.contract import (
    CacheAction,
    ComponentType,
    FreeDeviceKV,
    FreeDeviceKVFullOnly,
    InsertParams,
    InsertResult,
    MambaEvictExcessPathStates,
    RecoverSWAWithLockedFull,
    SWARebuild,
)
from .config import Config
from .prefixes import Page, Prefixes

FULL = ComponentType.FULL
SWA = ComponentType.SWA
AUXILIARY = ComponentType.AUXILIARY_SWA
MAMBA = ComponentType.MAMBA

Wish = tuple[str, int, int]
"""A kind of action, the slot that it names, and the slot that it moves to it (else 0)."""

FREE, FREE_FULL = FreeDeviceKV.__name__, FreeDeviceKVFullOnly.__name__
REBUILD, RECOVER = SWARebuild.__name__, RecoverSWAWithLockedFull.__name__
CAP = MambaEvictExcessPathStates.__name__


def window_sizes(config: Config) -> dict[ComponentType, int]:
    """Tokens that each window component of a tree keeps, in tree order (SWA-C2, SWA-C8)."""
    sizes = {SWA: config.retain_window} if config.has_windows else {}
    return sizes | ({AUXILIARY: config.aux_window or 0} if "aux_swa" in config.components else {})


def wishes_of(actions: Sequence[CacheAction]) -> dict[ComponentType, list[Wish]]:
    """Actions slot by slot, those of the second window apart; what backs up is left out."""
    found: dict[ComponentType, list[Wish]] = {SWA: [], AUXILIARY: []}
    for action in actions:
        name = type(action).__name__
        match action:
            case FreeDeviceKV(indices) | FreeDeviceKVFullOnly(indices):
                found[SWA] += [(name, slot, 0) for run in indices for slot in run.tolist()]
            case SWARebuild(source_value=source, component_type=kind):
                found[kind] += [(name, slot, 0) for slot in source.tolist()]
            case RecoverSWAWithLockedFull(kept_full=kept, incoming_full=incoming):
                pairs = zip(kept.tolist(), incoming.tolist(), strict=True)
                found[SWA] += [(name, slot, other) for slot, other in pairs]
            case MambaEvictExcessPathStates():
                found[SWA].append((name, 0, 0))
    return found


class Insertion:
    """An insert from its begin to its result.

    `chain` are the resident pages of its key up to `end`, `target` is where the key ends, once the
    walk got there. `values` are the slots that it brought. `is_vague`: it waits at a place that
    its actions don't tell.
    """

    def __init__(self, known: Prefixes, config: Config, params: InsertParams) -> None:
        contents, value = known.contents(params.key), params.value
        self.params = params
        self.chain = known.longest(contents)
        self.end = self.chain[-1] if self.chain else known.root
        self.target = self.end
        self.is_vague = False
        self.has_state = False
        self.values: list[int] = (
            list(params.key.raw_token_ids()) if value is None else value.tolist()
        )
        self._known = known
        self._config = config
        self._windows = window_sizes(config)
        self._rest = contents[len(self.chain) :]
        self._evicted = params.get_evicted_seqlen(SWA)
        self._adopted = InsertResult(0, adopted_ranges={})
        self._ahead: dict[ComponentType, deque[Wish]] = {SWA: deque(), AUXILIARY: deque()}
        self._walk = self._walk_down()

    @property
    def is_empty(self) -> bool:
        """Whether the key has no whole page (INS-14)."""
        return self.end is self._known.root and not self._rest

    @property
    def declines(self) -> bool:
        """Whether its rotation conflicts with what it would hang below (INS-16)."""
        base = self.params.rotation_base
        return base is not None and bool(self.chain) and self.end.rotation_base != base

    def coming(self, kind: ComponentType, count: int | None = None) -> list[Wish]:
        """The next so many wishes of a window, or all; FULL and states wish along with SWA."""
        ahead = self._ahead[kind]
        while count is None or len(ahead) < count:
            if next(self._walk, None) is None:
                break
        taken = len(ahead) if count is None else min(count, len(ahead))
        return [ahead.popleft() for _ in range(taken)]

    def adopted(self) -> dict[ComponentType, list[tuple[int, int]]]:
        """Ranges of its slots that the tree took over (SWA-I9, INS-40)."""
        return self._adopted.adopted_ranges or {}

    def has_branch(self) -> bool:
        """Whether it reached its branching length, which is not cut to pages (SWA-X3)."""
        branch = self.params.swa_branching_seqlen
        committed = bool(self._windows) and not self.is_empty and not self.declines
        return (
            committed and branch is not None and self._known.unit_count(self.params.key) >= branch
        )

    def _walk_down(self) -> Iterator[bool]:
        """Go on by one node each time."""
        if self.is_empty or self.declines:
            return
        node: list[Page] = []
        for page in self.chain:
            node.append(page)
            if page.is_end or page is self.end:
                page.is_end = True  # Where the key leaves a node, the node is split (INS-22).
                self._overlap(node)
                yield True
                node = []
        self._commit()
        yield True

    # --- Overlap --------------------------------------------------------------------------

    def _overlap(self, node: list[Page]) -> None:
        """What one walked node asks for: its window back, and duplicates freed (SWA-I4)."""
        start, end = self._start(node[0]), node[-1].length
        dup, consumed = max(0, self.params.prev_prefix_len - start), end - start
        if self.params.prev_prefix_len < end:
            if SWA in self._windows and SWA not in node[0].values:
                live = max(start, self._evicted)
                if live < end:
                    consumed = live - start
                    self._ahead[SWA] += self._recover(self._clip(node, live))
            if AUXILIARY in self._windows and AUXILIARY not in node[0].values:
                self._recover_auxiliary(node)
        self._ahead[SWA] += [
            (FREE_FULL if at < self._evicted else FREE, self.values[at], 0)
            for at in range(start + dup, start + consumed)
        ]

    def _start(self, page: Page) -> int:
        return page.length - self._known.page_size

    def _clip(self, node: list[Page], live: int) -> list[Page]:
        """The part of a node from `live` on; the node is split there (SWA-I3)."""
        kept = [page for page in node if self._start(page) >= live]
        _before(kept[0]).is_end = True
        return kept

    def _recover(self, segment: list[Page]) -> list[Wish]:
        """Give a segment its window back; FULL slots that are needed stay (SWA-I7, SWA-I8)."""
        start, end = self._start(segment[0]), segment[-1].length
        slots = [slot for page in segment for slot in page.slots]
        incoming = self.values[start:end]
        self._adopted.record_adopted_range(SWA, start, end)
        if segment[0].guards > 0 or AUXILIARY in segment[0].values:
            pairs = zip(slots, incoming, strict=True)
            return [(RECOVER, kept, moved) for kept, moved in pairs]
        self._adopted.record_adopted_range(FULL, start, end)
        for page in segment:
            self._known.replace(page, self.values[self._start(page) : page.length])
        return [(FREE_FULL, slot, 0) for slot in slots] + [(REBUILD, slot, 0) for slot in incoming]

    def _recover_auxiliary(self, node: list[Page]) -> None:
        """An independent window consumes nothing; where it begins, nodes are split (SWA-I14)."""
        live = max(self.params.get_evicted_seqlen(AUXILIARY), self.params.prev_prefix_len)
        if live <= self._start(node[-1]):
            pages = self._clip(node, live)
            self._rebuild(AUXILIARY, pages)
            start, end = self._start(pages[0]), pages[-1].length
            self._adopted.record_adopted_range(AUXILIARY, start, end)

    def _rebuild(self, kind: ComponentType, pages: list[Page]) -> None:
        self._ahead[kind] += [(REBUILD, slot, 0) for page in pages for slot in page.slots]

    # --- Commit ---------------------------------------------------------------------------

    def _commit(self) -> None:
        if self._rest:
            self._add_leaf()
        if self._config.has_states:
            assert self.params.mamba_value is not None, "an insert brings a state (MAM-I5)"
            self.has_state = MAMBA in self.target.values
            if not self.has_state:
                self._known.store(self.target, MAMBA, self.params.mamba_value.tolist())
                self._ahead[SWA] += [(CAP, 0, 0)] if self._config.state_cap >= 0 else []

    def _add_leaf(self) -> None:
        start, base = self.end.length, self.params.rotation_base
        self.target = self._known.add(self.end, self._rest, self.values[start:], base)
        self.target.is_end = True
        self._adopted.record_adopted_range(FULL, start, self.target.length)
        leaf = self._known.node_of(self.target)
        for kind, window in self._windows.items():
            live = max(start, self.params.get_evicted_seqlen(kind))
            if live < self.target.length:
                pages = self._clip(leaf, live)
                self._cap(pages, window)
                self._rebuild(kind, pages)
                self._adopted.record_adopted_range(kind, live, self.target.length)

    def _cap(self, pages: list[Page], window: int) -> None:
        """Cut each node that is longer, so that its end keeps one window (SWA-I20)."""
        kept = -(-window // self._known.page_size)
        for number in [number for number, page in enumerate(pages) if page.is_end]:
            node = self._known.node_of(pages[number])
            if len(node) > kept:
                _before(node[-kept]).is_end = True


def _before(page: Page) -> Page:
    assert page.before is not None, "the root is no part of a node"
    return page.before
