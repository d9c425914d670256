"""Window rows by position: where they are missing, and loaded ones put back (SWA-B1 to SWA-B4)."""

from __future__ import annotations

import torch

from ..contract import CacheAction, ComponentType, ContractError, RadixKey
from . import arguments
from .base import CoreBase, lacking
from .keys import PackedKey
from .node import Node
from .window import Window


class SpanCalls(CoreBase):
    """The calls that speak of a key's positions in a window component."""

    def swa_tombstone_ranges(
        self,
        key: RadixKey,
        start: int,
        end: int,
        component_type: ComponentType = ComponentType.SWA,
    ) -> list[tuple[int, int]]:
        """Parts of `[start, end)` that are cached without a window value (SWA-B1).

        Ascending, disjoint and maximal; positions beyond the cached prefix are left out. Raises
        `ContractError` for a span that does not fit the key or a component that is no window here.
        """
        window, packed = self._look_up(key, start, end, component_type)
        # Raw tokens, also where the tree counts pairs: the reference checks no more (SWA-X7).
        if end > self._tree.layout.token_count(key):
            raise ContractError(f"[{start}, {end}) does not fit the key")
        ranges: list[tuple[int, int]] = []
        for node, node_start, matched in self._matched(packed, end):
            node_end = node_start + matched
            if node_end <= start or window.data(node).device_value is not None:
                continue
            # An empty span within a node gives an empty range, as in the reference (SWA-B1).
            first, last = max(node_start, start), min(node_end, end)
            if ranges and ranges[-1][1] == first:
                first = ranges.pop()[0]
            ranges.append((first, last))
        return ranges

    def attach_swa_window(
        self,
        key: RadixKey,
        window_start: int,
        window_end: int,
        swa_values: torch.Tensor,
        component_type: ComponentType = ComponentType.SWA,
    ) -> list[CacheAction]:
        """Store loaded rows on a cached span that has none; returns split actions (SWA-B3, SWA-B4).

        Raises `ContractError`, and changes nothing, unless the whole span is cached without
        window values, is made of whole pages, and there is one int64 row for each unit.
        """
        arguments.tensor(swa_values, "swa_values")
        window, packed = self._look_up(key, window_start, window_end, component_type)
        self._check_rows(swa_values, window_start, window_end)
        if window_start == window_end:
            return []
        pieces = self._uncovered(window, packed, window_start, window_end)
        actions: list[CacheAction] = []
        for node, start in pieces:
            first = max(start, window_start)
            if first > start:
                actions += self._tree.split_action(self._tree.split(node, first - start), node)
            last, piece = first + node.length, node
            if last > window_end:
                piece = self._tree.split(node, window_end - first)
                actions += self._tree.split_action(piece, node)
                last = window_end
            # The caller keeps its tensor, so the tree takes a copy (SWA-D8).
            window.store(piece, swa_values[first - window_start : last - window_start].clone())
        return actions

    def _look_up(
        self, key: RadixKey, start: int, end: int, component_type: ComponentType
    ) -> tuple[Window, PackedKey]:
        """The window and the key of a call, once its arguments are converted."""
        component_type = arguments.component(component_type)
        start, end = arguments.unsigned(start, "start"), arguments.unsigned(end, "end")
        packed = self._tree.layout.pack(key)
        component = self._find_component(component_type)
        if not isinstance(component, Window):
            raise lacking(component_type)
        if start > end:
            raise ContractError(f"[{start}, {end}) is no span")
        return component, packed

    def _check_rows(self, rows: torch.Tensor, start: int, end: int) -> None:
        if rows.dim() != 1 or len(rows) != end - start:
            raise ContractError(f"rows of shape {tuple(rows.shape)} do not fit [{start}, {end})")
        if rows.dtype != torch.int64 or rows.device != self.device:
            raise ContractError(f"rows must be int64 on {self.device}, got {rows.dtype}")

    def _uncovered(
        self, window: Window, key: PackedKey, start: int, end: int
    ) -> list[tuple[Node, int]]:
        """The nodes that make up a span, all without a value, with where each begins."""
        if start % self.page_size or end % self.page_size:
            raise ContractError(f"[{start}, {end}) does not consist of whole pages")
        pieces = []
        covered = start
        for node, node_start, matched in self._matched(key, end):
            if node_start + matched <= start:
                continue
            if window.data(node).device_value is not None:
                raise ContractError(f"node {node.id} has its window value already")
            pieces.append((node, node_start))
            covered = node_start + matched
        if covered < end:
            raise ContractError(f"[{start}, {end}) is cached up to {covered} only")
        return pieces

    def _matched(self, key: PackedKey, end: int) -> list[tuple[Node, int, int]]:
        """Nodes along a key up to `end`: where each begins and how much of it matches."""
        tree = self._tree
        found = []
        node, position = tree.root, 0
        while position < min(end, key.length):
            child = tree.child_at(node, key, position)
            if child is None:
                break
            matched = tree.layout.matched_units(child, key, position)
            found.append((child, position, matched))
            position += matched
            if matched < child.length:
                break
            node = child
        return found
