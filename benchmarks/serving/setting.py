"""What a cache is built with."""

from __future__ import annotations

from typing import Any

import msgspec

COMPONENTS = ("full", "swa", "mamba")


class Setting(msgspec.Struct, kw_only=True, frozen=True):
    """A cache and its pools.

    `core` is the name of a registered backend; None leaves the choice to SGLang's variable.
    `slots` are tokens of the pool, of the window's pool too; `states` are slots for Mamba states.
    `rows` requests run at a time, none longer than `row_length` tokens. At most `chunk` tokens of
    a prompt are computed in one step. A state can be taken every `state_grid` tokens.
    `window_interval` decoded tokens lie between two releases out of the window. With
    `early_release` a request gives its prompt's window up once its output has passed it. `bigram`
    keys are pairs of tokens, as speculative decoding has them.
    """

    core: str | None = None
    components: tuple[str, ...] = ("full",)
    page_size: int = 1
    slots: int = 256
    window: int = 8
    window_interval: int = 1
    early_release: bool = False
    states: int = 48
    state_grid: int = 4
    rows: int = 4
    row_length: int = 192
    chunk: int = 32
    policy: str = "lru"
    policy_config: dict[str, Any] | None = None
    bigram: bool = False
    events: bool = False
    dynamo_events: bool = False
    linker: bool = False

    @property
    def has_window(self) -> bool:
        return "swa" in self.components

    @property
    def has_states(self) -> bool:
        return "mamba" in self.components

    @property
    def tracks_states(self) -> bool:
        """Whether requests keep states at page boundaries, as they must above page size 1."""
        return self.has_states and self.page_size > 1
