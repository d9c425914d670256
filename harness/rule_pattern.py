"""What a pattern of a rule is, and how the tables of patterns are written down."""

from __future__ import annotations

import msgspec


class Pattern(msgspec.Struct, frozen=True):
    """Divergences that one rule decides about.

    `place` is a glob over `rules.place_of`, `op` one over the op's kind. `about` is a word of
    `rules.words_of` that must be there: the name of a record that one side alone has, `None` if
    one side answered nothing, `length` if two lists are not equally long, or the component that
    the call is about.
    """

    place: str
    rule: str
    about: str | None = None
    op: str = "*"


def each(rule: str, *places: str, about: str | None = None, op: str = "*") -> list[Pattern]:
    """One pattern for each place."""
    return [Pattern(place, rule, about, op) for place in places]


def fields(rule: str, place: str, *names: str, about: str | None = None) -> list[Pattern]:
    """Patterns for fields of the record at a place, and for what these hold."""
    return [Pattern(f"{place}.{name}*", rule, about) for name in names]


FREED = ("device_frees", "host_frees", "cache_actions")
"""Fields of every `EvictionResult`, as `tracker` is, which has rules of its own."""

BACKUPS = ("mamba_backup_node_id", "swa_backup_node_id", "swa_backup_num_tokens")
"""Fields of a step that asks for a backup."""

INSERTING = ("begin_insert", "resume_insert")
EVICTING = (
    "evict_device_next_node",
    "evict_device_leaf",
    "demote",
    "drop_subtree_no_host",
    "drive_host_eviction",
    "finish_mamba_state_eviction",
    "finish_swa_state_eviction",
    "dec_swa_lock_only",
    "dec_window_lock_only",
)
"""Methods that answer an `EvictionResult`."""
