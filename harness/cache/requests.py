"""A request: its tokens, the row that holds their slots, and how much of it the tree owns."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

import torch

from treedrift.backends.contract import ComponentType
from treedrift.backends.pools import RequestStates

from ..ops import Namespace
from .controller import HeldLock


@dataclass(eq=False)
class WindowShare:
    """How much of one window's KV a request still has.

    `evicted` positions were given up by the request (SWA-Q2); it owns the peers from there, or
    from where the tree's part ends. `sure` is the first position of the tree's part that a lock of
    this request has kept since it was seen.
    """

    evicted: int = 0
    sure: int = 0


@dataclass(eq=False)
class Tracking:
    """The Mamba states of a request (MAM-R4).

    `source` is the cached state that the request starts from and has not copied yet. `last_depth`
    and `prev_depth` are the depths of the last two tracked states, None for none; at `branch` a
    state is worth keeping (MAM-M8).
    """

    slots: RequestStates
    source: torch.Tensor | None
    branch: int | None
    last_depth: int | None = None
    prev_depth: int | None = None


@dataclass(eq=False)
class Request:
    """A request that holds a row and a lock, or waits to be admitted again.

    `tokens` are the prompt and what was decoded. The first `computed_len` of them have KV in the
    row; the tree owns the slots of the first `protected_len`; `inserted_len` units were inserted
    so far (CTL-38). `slots` is the row itself. `fingerprints` holds one number per token of
    `tokens`, in a tensor as long as a row, which belongs to the row as well.

    `windows` has an entry per sliding window, `tracking` is there with Mamba states until the
    request is over; `window_branch` is the depth at which the tree could do with a window (SWA-M8).
    """

    tokens: array[int]
    namespace: Namespace
    priority: int
    session_id: str | None
    rotation_base: int | None
    prompt_len: int
    row: int
    slots: torch.Tensor
    lock: HeldLock
    fingerprints: torch.Tensor
    protected_len: int = 0
    computed_len: int = 0
    inserted_len: int = 0
    windows: dict[ComponentType, WindowShare] = field(default_factory=dict)
    window_branch: int | None = None
    tracking: Tracking | None = None

    @property
    def is_prefilled(self) -> bool:
        """Whether every token of the prompt has KV, so that the request can decode."""
        return self.computed_len >= self.prompt_len
