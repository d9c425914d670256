"""What a core must hold, page by page: the memory of the reference model.

A dictionary from each page of each prefix that is resident to its record. It knows no nodes and
no splits; a page knows the page before it and nothing else of its surroundings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..backends.contract import InsertParams, RadixKey
from .config import Config


class Page:
    """One page of a prefix. `length` counts units from the root through this page.

    `followers` are the resident pages that go on from this one. `guards` are the locks that end
    here, and the followers that are guarded themselves. A page that was given back has no slots.
    """

    __slots__ = ("before", "followers", "guards", "key", "length", "rotation_base", "slots")

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

    @property
    def is_kept(self) -> bool:
        """Whether a lock holds it, or another page goes on from it: then it can't be evicted."""
        return self.guards > 0 or self.followers > 0

    def __str__(self) -> str:
        state = "resident" if self.slots else "given back before"
        held = "locked, " if self.guards > 0 else ""
        return f"{self.length} units, {state}, {held}{self.followers} pages following"


class Prefixes:
    """All resident prefixes of one tree. `root` ends the empty one, in every namespace.

    `resident` and `protected` count units: all of them, and those that a lock holds.
    """

    def __init__(self, config: Config) -> None:
        self.page_size = config.page_size
        self.root = Page(None, None, [], None)
        self.protected = 0
        self._pair = int(config.bigram)
        self._pages: dict[Any, Page] = {}
        self._owners: dict[int, Page] = {}

    @property
    def resident(self) -> int:
        """Units that are resident."""
        return len(self._pages) * self.page_size

    def contents(self, key: RadixKey) -> list[Any]:
        """What tells each whole page of a key from others: its tokens, and first its namespace.

        A page of pairs holds the token that closes its last pair as well (KEY-8).
        """
        tokens, limit, size = key.token_ids, key.limit, self.page_size
        count = (len(tokens) if limit is None else min(limit, len(tokens))) - self._pair
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

    def owner(self, slots: list[int]) -> Page | None:
        """The page that has exactly these slots."""
        page = self._owners.get(slots[0]) if slots else None
        return page if page is not None and page.slots == slots else None

    def foreign(self, slots: list[int]) -> list[int]:
        """First slots of pages that no prefix has, sorted."""
        return sorted(set(slots[:: self.page_size]) - self._owners.keys())


class Insertion:
    """An insert from its begin to its result.

    `chain` are the resident pages of its key up to `end`, `rest` tells the pages after it, `values`
    are the slots that it brought, of which `freed` were given back so far.
    """

    __slots__ = ("chain", "end", "freed", "params", "rest", "values")

    def __init__(self, known: Prefixes, params: InsertParams) -> None:
        contents, value = known.contents(params.key), params.value
        self.params = params
        self.chain = known.longest(contents)
        self.end = self.chain[-1] if self.chain else known.root
        self.rest = contents[len(self.chain) :]
        self.values: list[int] = (
            list(params.key.raw_token_ids()) if value is None else value.tolist()
        )
        self.freed = 0
