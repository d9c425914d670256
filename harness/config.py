"""The configuration of one trace: what kind of tree, how large its pools, which features are on.

It is plain data, the same on both sides, and the first line of a saved trace.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from ..backends.contract import ComponentType

MAX_I64 = 2**63 - 1

COMPONENT_NAMES = {
    "full": ComponentType.FULL,
    "swa": ComponentType.SWA,
    "mamba": ComponentType.MAMBA,
    "aux_swa": ComponentType.AUXILIARY_SWA,
}
"""Components as traces spell them, in tree order but for `aux_swa`, which follows `swa`."""

StateBuffer = Literal["none", "single", "double", "lazy"]
"""How a request tracks states: not at all, with one entry, two, or two taken late (MAM-R4)."""

TREE_ORDERS = frozenset(
    (
        ("full",),
        ("full", "swa"),
        ("full", "mamba"),
        ("full", "swa", "mamba"),
        ("full", "swa", "aux_swa"),
        ("full", "swa", "aux_swa", "mamba"),
    )
)
"""Component sets of a tree, each in its one order (SWA-C1, SWA-C8)."""

PolicyValue = bool | int | float | str
"""A policy parameter. Text stands for what JSON can't hold: `nan`, `inf`, a huge integer."""


class Config(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """One configuration of a side.

    `capacity` counts device slots, `rows` requests at a time, `row_length` tokens of one request.
    Lengths that a page must divide are cut by whoever uses them.

    With `swa`: `window` and `draft_window` are tokens (SWA-C2), `aux_window` those of `aux_swa`;
    `window_capacity` counts the slots of each window pool, None as many as `capacity`;
    `window_interval` is how many tokens a request batches before it gives slots up (SWA-Q2).
    `window_gates` off lets matches end on tombstones (SWA-C5); `window_ring` has no window pool at
    all and needs gates off (POOL-40); `window_replay` recomputes a window's tail on every arrival
    (SWA-M13).

    With `mamba`: `states` counts slots, `state_chunk` tokens between two states (MAM-C2),
    `state_cap` states of one path, negative for no limit (MAM-D10); `state_skip_lock` leaves
    states of running requests unlocked (MAM-L18).
    """

    components: tuple[str, ...] = ("full",)
    page_size: int = 1
    bigram: bool = False
    policy: str = "lru"
    policy_config: dict[str, PolicyValue] = {}
    capacity: int = 64
    rows: int = 4
    row_length: int = 64
    need_sort: bool = False
    events: bool = False
    dynamo_events: bool = False
    lora_names: dict[str, str] = {}
    storage: bool = False
    linker: bool = False
    write_through_threshold: int = 256
    buffer_only: bool = False
    write_back: bool = False
    window: int | None = None
    draft_window: int = 0
    aux_window: int | None = None
    window_capacity: int | None = None
    window_interval: int = 1
    window_gates: bool = True
    window_ring: bool = False
    window_replay: bool = False
    states: int = 16
    state_chunk: int = 1
    state_cap: int = -1
    state_buffer: StateBuffer = "none"
    state_skip_lock: bool = False

    @property
    def has_windows(self) -> bool:
        """Whether the tree has a sliding-window component."""
        return "swa" in self.components

    @property
    def has_states(self) -> bool:
        """Whether the tree has Mamba states."""
        return "mamba" in self.components

    @property
    def is_bigram(self) -> bool:
        """Whether the tree holds pairs of tokens; never with Mamba states (KEY-20)."""
        return self.bigram and not self.has_states

    @property
    def retain_window(self) -> int:
        """Tokens that `swa` keeps, the greater of both windows (SWA-C2); 0 without `swa`."""
        return max(self.window or 0, self.draft_window) if self.has_windows else 0

    @property
    def state_grid(self) -> int:
        """Depths at which states are tracked are multiples of this (MAM-C2)."""
        return math.lcm(self.state_chunk, self.page_size)

    def component_types(self) -> tuple[ComponentType, ...]:
        """The components in tree order."""
        return tuple(COMPONENT_NAMES[name] for name in self.components)

    def policy_arguments(self) -> dict[str, bool | int | float]:
        """`policy_config` with text turned back into the numbers it stands for."""
        return {name: _number(value) for name, value in self.policy_config.items()}


def _number(value: PolicyValue) -> bool | int | float:
    if not isinstance(value, str):
        return value
    return float(value) if value in ("nan", "inf", "-inf") else int(value)


def problems(config: Config) -> list[str]:
    """What is wrong with a configuration, one sentence each that starts with the field's name."""
    found = []
    if config.components not in TREE_ORDERS:
        known = "; ".join(", ".join(names) for names in sorted(TREE_ORDERS))
        found.append(f"components must be one of: {known}; got {', '.join(config.components)}")
    for name in ("page_size", "capacity", "rows", "row_length"):
        value = getattr(config, name)
        if not 1 <= value <= MAX_I64:
            found.append(f"{name} must be a positive number, got {value}")
    threshold = config.write_through_threshold
    if threshold < 0:
        found.append(f"write_through_threshold must not be negative, got {threshold}")
    for name, value in config.policy_config.items():
        try:
            _number(value)
        except ValueError:
            found.append(f"policy_config.{name} is not a number: {value!r}")
    found += _window_problems(config)
    found += _state_problems(config)
    return found


def _window_problems(config: Config) -> list[str]:
    found = []
    if config.has_windows and not 1 <= (config.window or 0) <= MAX_I64:
        found.append(f"window must be a positive number with swa, got {config.window}")
    if "aux_swa" in config.components and not 1 <= (config.aux_window or 0) <= MAX_I64:
        found.append(f"aux_window must be a positive number with aux_swa, got {config.aux_window}")
    if not 0 <= config.draft_window <= MAX_I64:
        found.append(f"draft_window must not be negative, got {config.draft_window}")
    if config.window_capacity is not None and not 1 <= config.window_capacity <= MAX_I64:
        found.append(f"window_capacity must be a positive number, got {config.window_capacity}")
    if not 1 <= config.window_interval <= MAX_I64:
        found.append(f"window_interval must be a positive number, got {config.window_interval}")
    if config.window_ring and config.window_gates:
        found.append("window_ring needs window_gates off: there is no window pool to ask")
    return found


def _state_problems(config: Config) -> list[str]:
    found = []
    for name in ("states", "state_chunk"):
        value = getattr(config, name)
        if not 1 <= value <= MAX_I64:
            found.append(f"{name} must be a positive number, got {value}")
    if not -1 <= config.state_cap <= MAX_I64:
        found.append(f"state_cap must be at least -1, got {config.state_cap}")
    if config.has_states and config.page_size > 1 and config.state_buffer == "none":
        found.append("state_buffer must not be none with pages of several tokens (MAM-C5)")
    return found
