"""What a core must hold, page by page: the memory of the reference model.

A dictionary from each page of each prefix that is resident to its record. A page knows the page
before it and whether a node ends with it, and nothing else of its surroundings: a split is one
more page with which a node ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ..backends.contract import ComponentType, RadixKey
from .config import Config

MAMBA = ComponentType.MAMBA


class Page:
    """One page of a prefix. `length` counts units from the root through this page.

    `followers` are the resident pages that go on from this one. `guards` are the locks that end
    here, and the followers that are guarded themselves. A page that was given back has no slots.

    `values` are what components besides FULL have here: a window's slots of this page, or the one
    state after it. `held` counts the locks of each such component on this page, and `marks` are
    the boundary ids of the node that begins with this page (SWA-L1).
    """

    __slots__ = (
        "before",
        "followers",
        "guards",
        "held",
        "is_end",
        "key",
        "length",
        "marks",
        "rotation_base",
        "slots",
        "values",
    )

    def __init__(
        self, before: Page | None, content: Any, slots: list[int], rotation_base: int | None
    ) -> None:
        self.before = before
        self.key = (before, content)
        self.slots = slots
        self.rotation_base = rotation_base
        self.length: int = (before.length if before is not None else 0) + len(slots)
        self.followers = 0
        self.guards = 0
        self.is_end = before is None
        self.values: dict[ComponentType, list[int]] = {}
        self.held: Counter[ComponentType] = Counter()
        self.marks: dict[ComponentType, int] = {}

    @property
    def is_kept(self) -> bool:
        """Whether a lock holds it, or another page goes on from it: then it can't be evicted."""
        return self.is_locked or self.followers > 0

    @property
    def is_locked(self) -> bool:
        """Whether a lock of any component holds it (SWA-L23, MAM-L15)."""
        return self.guards > 0 or any(self.held.values())

    def __str__(self) -> str:
        state = "resident" if self.slots else "given back before"
        held = "locked, " if self.is_locked else ""
        return f"{self.length} units, {state}, {held}{self.followers} pages following"


class Prefixes:
    """All resident prefixes of one tree. `root` ends the empty one, in every namespace.

    `resident` and `protected` count units: all of them, and those that a lock holds. `stored` and
    `locked` count the same for the values of the other components.
    """

    def __init__(self, config: Config) -> None:
        self.page_size = config.page_size
        self.root = Page(None, None, [], None)
        self.protected = 0
        self.stored: Counter[ComponentType] = Counter()
        self.locked: Counter[ComponentType] = Counter()
        self._pair = int(config.is_bigram)
        self._pages: dict[Any, Page] = {}
        self._owners: dict[int, Page] = {}
        self._state_owners: dict[int, Page] = {}

    @property
    def resident(self) -> int:
        """Units that are resident."""
        return len(self._pages) * self.page_size

    def unit_count(self, key: RadixKey) -> int:
        """Units of a key, those after its last whole page too."""
        tokens, limit = len(key.token_ids), key.limit
        return max((tokens if limit is None else min(limit, tokens)) - self._pair, 0)

    def contents(self, key: RadixKey) -> list[Any]:
        """What tells each whole page of a key from others: its tokens, and first its namespace.

        A page of pairs holds the token that closes its last pair as well (KEY-8).
        """
        tokens, size = key.token_ids, self.page_size
        count = self.unit_count(key)
        data, width, step = tokens.tobytes(), 8 * (size + self._pair), 8 * size
        ends = range(0, count // size * step, step)
        contents: list[Any] = [data[start : start + width] for start in ends]
        if contents:
            contents[0] = (key.extra_key, key.cache_salt, contents[0])
        return contents

    def longest(self, contents: Sequence[Any]) -> list[Page]:
        """The pages of the longest resident prefix."""
        chain: list[Page] = []
        page: Page | None = self.root
        for content in contents:
            page = self._pages.get((page, content))
            if page is None:
                break
            chain.append(page)
        return chain

    def path(self, end: Page, start: Page) -> list[int] | None:
        """Slots from after one page through another; None if the first is not on the way."""
        runs = []
        while end is not start:
            if end.before is None:
                return None
            runs.append(end.slots)
            end = end.before
        return [slot for run in reversed(runs) for slot in run]

    def add(self, end: Page, contents: Sequence[Any], slots: list[int], base: int | None) -> Page:
        """Pages that a core took in after `end`; returns the last one."""
        for number, content in enumerate(contents):
            start = number * self.page_size
            end.followers += 1
            end = Page(end, content, slots[start : start + self.page_size], base)
            self._pages[end.key] = end
            self._owners[end.slots[0]] = end
        return end

    def remove(self, page: Page) -> None:
        """A page was given back."""
        del self._pages[page.key], self._owners[page.slots[0]]
        if page.before is not None:
            page.before.followers -= 1
        page.slots = []

    def replace(self, page: Page, slots: list[int]) -> None:
        """A page moved to other slots (SWA-I8)."""
        del self._owners[page.slots[0]]
        page.slots = slots
        self._owners[slots[0]] = page

    def node_of(self, end: Page) -> list[Page]:
        """The pages of the node that ends with this page, from the top down."""
        pages = [end]
        while (before := pages[-1].before) is not None and not before.is_end:
            pages.append(before)
        return pages[::-1]

    def guard(self, page: Page, change: int) -> None:
        """Locks of a prefix come or go: they hold every page up to its end (LOCK-20)."""
        while page.before is not None:
            was_guarded = page.guards > 0
            page.guards += change
            change = (page.guards > 0) - was_guarded
            if not change:
                break  # The pages before are held or free as they were.
            self.protected += change * self.page_size
            page = page.before

    # --- Windows and states -----------------------------------------------------------

    def store(self, page: Page, kind: ComponentType, entries: list[int]) -> None:
        """A component gets its value of a page."""
        page.values[kind] = entries
        self.stored[kind] += len(entries)
        self.locked[kind] += len(entries) if page.held[kind] else 0
        if kind is MAMBA:
            self._state_owners[entries[0]] = page

    def take(self, page: Page, kind: ComponentType) -> None:
        """A component loses its value of a page."""
        entries = page.values.pop(kind)
        self.stored[kind] -= len(entries)
        self.locked[kind] -= len(entries) if page.held[kind] else 0
        if kind is MAMBA:
            self._state_owners.pop(entries[0], None)

    def hold(self, page: Page, kind: ComponentType, change: int) -> None:
        """A lock of a component comes or goes."""
        was_held = page.held[kind] > 0
        page.held[kind] += change
        moved = (page.held[kind] > 0) - was_held
        self.locked[kind] += moved * len(page.values.get(kind, ()))

    def state_owner(self, slot: int) -> Page | None:
        """The page after which this state was taken."""
        return self._state_owners.get(slot)

    def states(self) -> list[int]:
        """The slots of all states, sorted."""
        return sorted(self._state_owners)

    # --- Slots ------------------------------------------------------------------------

    def owner(self, slots: list[int]) -> Page | None:
        """The page that has exactly these slots."""
        page = self._owners.get(slots[0]) if slots else None
        return page if page is not None and page.slots == slots else None

    def foreign(self, slots: list[int]) -> list[int]:
        """First slots of pages that no prefix has, sorted."""
        return sorted(set(slots[:: self.page_size]) - self._owners.keys())
