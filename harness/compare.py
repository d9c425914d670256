"""Finds the first difference between two observations and says where it is.

A place is a path such as `calls[2].match_prefix.result.device_prefix_len`. The signature of a
divergence is the op, that path without numbers, and the error types: what one fault gives again
and again, whatever the tokens. A component other than FULL is named beside the method that it was
passed to, and components name the entries of a mapping by component.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from ..backends import contract
from .canonical import pack
from .observation import Observation, decode
from .recorder import parameters_of

STRUCTS = {
    name: kind.__struct_fields__
    for name, kind in vars(contract).items()
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct)
}
"""Field names of every record of the contract."""

BY_COMPONENT = frozenset(
    {
        "adopted_ranges",
        "comp_xfers",
        "component_evicted_seqlens",
        "component_host_lock_uuids",
        "component_lock_uuids",
        "device_frees",
        "host_frees",
        "tracker",
    }
)
"""Fields of records that map components to something; they are recorded as lists of pairs."""

FULL = int(contract.ComponentType.FULL)
NODE_FACTS = (
    "handle",
    "is_root",
    "is_backuped",
    "is_full_device_evicted",
    "device_value",
    "hash_values",
    "last_hash_value",
    "prefix_hash_values",
    "rotation_base",
    "swa_value",
    "aux_swa_value",
    "mamba_value",
)
"""What is told of a node; the last three only in trees with more than FULL."""

SIZE_NAMES = (
    "evictable",
    "protected",
    "has_ongoing_insert",
    "free",
    "requests",
    "swa_evictable",
    "swa_protected",
    "swa_free",
    "aux_swa_evictable",
    "aux_swa_protected",
    "aux_swa_free",
    "mamba_evictable",
    "mamba_protected",
    "mamba_free",
)
"""What is counted after an op; those of windows and states only in trees with more than FULL."""


class Difference(msgspec.Struct):
    """Where two values part, and both values there.

    `is_soft`: the sides still are in the same state, so that the comparison can go on.
    """

    where: str
    left: Any
    right: Any
    is_soft: bool = False


class Divergence(msgspec.Struct, kw_only=True):
    """The first thing that went wrong in one case for one pair.

    `kind`: `difference`, `oracle`, `crash`, `hang`, `memory` or `refused`. `side` names the guilty
    side where one side alone shows the fault. `op_index` counts from 0; None in the final drain.
    A soft one leaves the sides in the same state: the case goes on. `verdict` says by which oracle
    and message the `side` of a difference is found guilty; None where nothing tells.
    """

    pair: tuple[str, str]
    kind: str
    op_index: int | None
    op_kind: str
    where: str
    left: Any = None
    right: Any = None
    side: str | None = None
    signature: str = ""
    file: str | None = None
    is_soft: bool = False
    verdict: str | None = None

    def __post_init__(self) -> None:
        if not self.signature:
            self.signature = signature_of(self)


def signature_of(divergence: Divergence) -> str:
    """A short name that every divergence of one kind shares.

    Who is guilty of a difference is a verdict about the kind and no part of its name.
    """
    if divergence.kind == "difference":
        place = re.sub(r"\[\d+\]", "[]", divergence.where)
    else:
        place = re.sub(r"\[[-\d, ]+\]|-?\d+", "#", divergence.where)
    is_named = divergence.side is not None and divergence.kind != "difference"
    side = f"@{divergence.side}" if is_named else ""
    return f"{divergence.kind}:{divergence.op_kind}:{place}{side}"


def decisive(found: Sequence[Divergence]) -> Divergence | None:
    """The one that a run of a trace is known by: the first hard one, or else the first."""
    return min(found, key=lambda one: one.is_soft, default=None)


def without_releases(signature: str, pair: tuple[str, str]) -> str:
    """A signature that is the same for all releases of the cores: sides without what follows `@`.

    Two releases of one core keep their names: those alone tell the sides apart.
    """
    cores = [name.partition("@")[0] for name in pair]
    if cores[0] == cores[1]:
        return signature
    for name, core in zip(pair, cores, strict=True):
        signature = signature.replace(name, core)
    return signature


def mirrored(signature: str) -> str:
    """The signature as the pair shows it with its sides exchanged: two ends change places."""
    return re.sub(r"(\w+)\|(\w+)", r"\2|\1", signature)


def first_difference(left: Any, right: Any, where: str = "") -> Difference | None:
    """The first place where two plain values differ, depth first; None if they are equal."""
    if type(left) is not type(right):
        return Difference(where, left, right)
    if isinstance(left, dict):
        return _first_in_dict(left, right, where)
    if isinstance(left, list):
        return _first_in_list(left, right, where)
    return None if left == right else Difference(where, left, right)


def _first_in_dict(left: dict[Any, Any], right: dict[Any, Any], where: str) -> Difference | None:
    for key in sorted({*left, *right}, key=str):
        place = f"{where}.{_component(key)}"
        if key not in left or key not in right:
            return Difference(place, left.get(key), right.get(key))
        found = first_difference(left[key], right[key], place)
        if found is not None:
            return found
    return None


def _component(key: Any) -> str:
    """The name of a component, which is the only thing that stands as a number in a mapping."""
    known = {str(int(kind)): kind.name.lower() for kind in contract.ComponentType}
    return known.get(str(key), str(key))


def _first_in_list(left: list[Any], right: list[Any], where: str) -> Difference | None:
    kinds = _kind(left), _kind(right)
    if kinds[0] != kinds[1] and None not in kinds:
        return Difference(f"{where}.type", *kinds)
    names = _field_names(left, right)
    for index, (one, other) in enumerate(zip(left, right, strict=False)):
        place = f"{where}.{names[index]}" if names else f"{where}[{index}]"
        mappings = _mappings(one, other) if names and names[index] in BY_COMPONENT else None
        if mappings is not None:
            found = _first_in_dict(*mappings, place)
        else:
            found = first_difference(one, other, place)
        if found is not None:
            return found
    if len(left) != len(right):
        return Difference(f"{where}.length", left, right)
    return None


def _mappings(left: Any, right: Any) -> tuple[dict[Any, Any], dict[Any, Any]] | None:
    """Two lists of pairs as mappings; None if one of them is no such list."""
    try:
        return dict(left), dict(right)
    except (TypeError, ValueError):
        return None


def _kind(plain: list[Any]) -> str | None:
    """The record that a plain list stands for; None for an ordinary list."""
    if not plain or not isinstance(plain[0], str):
        return None
    fields = STRUCTS.get(plain[0])
    return plain[0] if fields is not None and len(plain) == len(fields) + 1 else None


def _field_names(left: list[Any], right: list[Any]) -> tuple[str, ...] | None:
    kind = _kind(left)
    return ("type", *STRUCTS[kind]) if kind is not None and kind == _kind(right) else None


def compare(left: bytes, right: bytes) -> Difference | None:
    """The first difference between two encoded observations."""
    if left == right:
        return None
    return compare_decoded(decode(left), decode(right))


def compare_decoded(left: Observation, right: Observation) -> Difference | None:
    """Calls first, in order: what the core answered explains everything after it.

    A soft difference is told only if nothing else differs.
    """
    soft = _soften(left.calls, right.calls)
    return _compare_all(left, right) or soft


def compare_calls(left: list[Any], right: list[Any]) -> Difference | None:
    """The first difference between the calls of two sides, as `compare_decoded` tells it.

    Where it is a soft one, the entries of `right` become those of `left`.
    """
    if pack(left) == pack(right):
        return None
    soft = _soften(left, right)
    return _compare_calls(left, right) or soft


def compare_sizes(left: Sequence[int], right: Sequence[int]) -> Difference | None:
    """The first counter that differs, of those that `SIZE_NAMES` names."""
    for name, one, other in zip(SIZE_NAMES, left, right, strict=False):
        if one != other:
            return Difference(f"sizes.{name}", one, other)
    return None


def _soften(left: list[Any], right: list[Any]) -> Difference | None:
    """The first soft difference of calls; all of them are made equal."""
    soft = [_overlook(left, right), regroup_events(left, right)]
    return next(filter(None, soft), None)


OPTIONAL_ANSWERS = ("rotation_phase_of", "buffer_backup_pool_keys")
"""Questions that a core may leave at the interface's default answer (PLUG-1)."""


def _overlook(left: list[Any], right: list[Any]) -> Difference | None:
    """Tell where the answers to optional questions differ, and make them equal."""
    found = None
    for index, (one, other) in enumerate(zip(left, right, strict=False)):
        if one[0] == other[0] and one[0] in OPTIONAL_ANSWERS and one[2] != other[2]:
            place = f"calls[{index}].{one[0]}"
            found = Difference(place, one[2], other[2], is_soft=one[2][0] == other[2][0] == "ok")
            if found.is_soft:
                right[index] = one
    return found


def regroup_events(left: list[Any], right: list[Any]) -> Difference | None:
    """Tell events that are grouped differently and say the same, and make them equal.

    Merging is a matter of transport: a reader that applies one page after the other ends in the
    same state (section 4 of the first chapter).
    """
    found = None
    for index, (one, other) in enumerate(zip(left, right, strict=False)):
        if one[0] != "take_events" or other[0] != "take_events" or one == other:
            continue
        if one[2][0] == other[2][0] == "ok" and _pages(one[2][1]) == _pages(other[2][1]):
            # The first event that differs begins with a page that is the same on both sides.
            both = zip(one[2][1], other[2][1], strict=False)
            kind = next((mine[0] for mine, theirs in both if mine != theirs), "empty")
            place = f"calls[{index}].take_events.grouping.{kind}"
            found = Difference(place, one[2][1], other[2][1], is_soft=True)
            right[index] = one
    return found


def _pages(events: list[Any]) -> list[Any]:
    """Events expanded to one record a page, each chained to the one before it."""
    pages: list[Any] = []
    for event in events:
        if event[0] == "BlockRemoved":
            pages += [["removed", block, *event[2:]] for block in event[1]]
        elif event[0] == "BlockStored":
            _, hashes, parent, units, size, *rest = event
            for number, block in enumerate(hashes):
                pages.append([block, parent, units[number * size : (number + 1) * size], *rest])
                parent = block
        else:
            pages.append(event)
    return pages


def _compare_all(left: Observation, right: Observation) -> Difference | None:
    found = _compare_calls(left.calls, right.calls)
    if found is not None:
        return found
    if left.outcome != right.outcome:
        ends = f"{left.outcome or 'ok'}|{right.outcome or 'ok'}"
        return Difference(f"outcome.{ends}", left.outcome, right.outcome)
    found = first_difference(left.pool, right.pool, "pool")
    if found is not None:
        return found
    if left.dead or right.dead:
        return None  # There is nothing more to see; a finding says why.
    return (
        compare_sizes(left.sizes, right.sizes)
        or _compare_trees(left.tree, right.tree)
        or first_difference(left.snapshot, right.snapshot, "snapshot")
    )


def _compare_calls(left: list[Any], right: list[Any]) -> Difference | None:
    for index, (one, other) in enumerate(zip(left, right, strict=False)):
        found = _compare_call(one, other, f"calls[{index}]")
        if found is not None:
            return found
    if len(left) != len(right):
        longer = left if len(left) > len(right) else right
        extra = longer[min(len(left), len(right))][0]
        return Difference(f"calls.{extra}", len(left), len(right))
    return None


def _compare_call(left: list[Any], right: list[Any], where: str) -> Difference | None:
    """Method, arguments, how it ended, and the buffers that it filled."""
    if left[0] != right[0]:
        return Difference(f"{where}.method", left[0], right[0])
    where = f"{where}.{left[0]}"
    found = _compare_arguments(left[0], left[1], right[1], where)
    if found is not None:
        return found
    where += _component_asked_for(left)
    end, other_end = left[2], right[2]
    if end[0] != other_end[0]:
        return Difference(f"{where}.{_ends(end, other_end)}", end, other_end)
    if end[0] == "ok":
        found = first_difference(end[1], other_end[1], f"{where}.result")
    elif end[1] != other_end[1]:
        found = Difference(f"{where}.{_ends(end, other_end)}", end, other_end)
    else:
        found = first_difference(end[2], other_end[2], f"{where}.error.handle")
    return found or first_difference(left[3:], right[3:], f"{where}.filled")


def _component_asked_for(call: list[Any]) -> str:
    """The component that a call is about, if it is not FULL, which every tree has."""
    asked = dict(zip(parameters_of(call[0]), call[1], strict=False)).get("component_type")
    return f"({_component(asked)})" if type(asked) is int and asked != FULL else ""


def _ends(left: list[Any], right: list[Any]) -> str:
    """How two calls ended that did not end alike: both ends, by error type."""
    return "|".join(end[1] if end[0] == "error" else "ok" for end in (left, right))


def _compare_arguments(
    method: str, left: list[Any], right: list[Any], where: str
) -> Difference | None:
    names = parameters_of(method)
    for index, (one, other) in enumerate(zip(left, right, strict=False)):
        name = names[index] if index < len(names) else str(index)
        found = first_difference(one, other, f"{where}.{name}")
        if found is not None:
            return found
    return None


def _compare_trees(left: Any, right: Any) -> Difference | None:
    if left is None or right is None:
        return first_difference(left, right, "tree")
    for one, other in zip(left["nodes"], right["nodes"], strict=False):
        for name, mine, theirs in zip(NODE_FACTS, one, other, strict=False):
            # By type too: 1 and True are equal to Python and not the same answer.
            if first_difference(mine, theirs) is not None:
                return Difference(f"tree.node.{name}", mine, theirs)
    return first_difference(left, right, "tree")
