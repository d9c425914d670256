"""The configuration of one trace: what kind of tree, how large its pools, which features are on.

It is plain data, the same on both sides, and the first line of a saved trace.
"""

from __future__ import annotations

import msgspec

from ..backends.contract import ComponentType

MAX_I64 = 2**63 - 1

COMPONENT_NAMES = {
    "full": ComponentType.FULL,
    "swa": ComponentType.SWA,
    "mamba": ComponentType.MAMBA,
}
"""Components as traces spell them."""

PolicyValue = bool | int | float | str
"""A policy parameter. Text stands for what JSON can't hold: `nan`, `inf`, a huge integer."""


class Config(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """One configuration of a side.

    `capacity` counts device slots, `rows` requests at a time, `row_length` tokens of one request.
    Lengths that a page must divide are cut by whoever uses them.
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
    unknown = [name for name in config.components if name not in COMPONENT_NAMES]
    if unknown or config.components[:1] != ("full",):
        known = ", ".join(COMPONENT_NAMES)
        found.append(f"components must be full, then some of {known}, got {config.components}")
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
    return found
