"""A request: its tokens, the row that holds their slots, and how much of it the tree owns."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

import torch

from ..ops import Namespace
from .controller import HeldLock


@dataclass(eq=False)
class Request:
    """A request that holds a row and a lock, or waits to be admitted again.

    `tokens` are the prompt and what was decoded. The first `computed_len` of them have KV in the
    row; the tree owns the slots of the first `protected_len`; `inserted_len` units were inserted
    so far (CTL-38). `slots` is the row itself. `fingerprints` holds one number per token of
    `tokens`, in a tensor as long as a row, which belongs to the row as well.
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

    @property
    def is_prefilled(self) -> bool:
        """Whether every token of the prompt has KV, so that the request can decode."""
        return self.computed_len >= self.prompt_len
