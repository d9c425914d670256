"""Recorded values, calls and ops as text that a person reads.

Records show their fields by name, long lists are cut, and two values side by side are cut around
the place where they part. Hides the shape that `canonical` gives to keys, tensors and digests.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..backends.contract import ComponentType
from .canonical import HANDLE_FIELDS
from .compare import BY_COMPONENT, STRUCTS, first_difference
from .explanation import Row
from .ops import Namespace, Op, kind_of
from .recorder import parameters_of

ITEMS_SHOWN = 12
"""Items of a list that are shown before the rest is counted."""

ITEMS_AROUND = 3
"""Items on each side of the first difference of two long lists."""

HASH_SHOWN = 12
"""Leading characters of a page hash that are shown."""

CALL_CHARACTERS = 240
"""Longer descriptions of a call are cut."""

MISSING = "-"
"""What stands where one side has nothing."""

EMPTY: tuple[Any, ...] = (None, [], {}, False, 0)
"""Values that say nothing when both sides show them; 0 does where it is a handle."""


def is_record(item: Any) -> bool:
    """Whether a plain value stands for a record of the contract."""
    if not isinstance(item, list) or not item or not isinstance(item[0], str):
        return False
    fields = STRUCTS.get(item[0])
    return fields is not None and len(item) == len(fields) + 1


def fields_of(record: list[Any]) -> dict[str, Any]:
    """The fields of a record in plain form, by name."""
    return dict(zip(STRUCTS[record[0]], record[1:], strict=True))


# --- Values -------------------------------------------------------------------------------


def describe(item: Any, name: str = "") -> str:
    """A plain value as text; `name` is its field's, which tells components from numbers."""
    if name == "component_type":
        return component_name(item)
    if isinstance(item, str):
        return _text(item)
    if not isinstance(item, list):
        return str(item)
    if is_record(item):
        shown = [
            f"{field}={describe(value, field)}"
            for field, value in fields_of(item).items()
            if not _is_empty(value, field)
        ]
        return f"{item[0]}({', '.join(shown)})"
    if name in BY_COMPONENT:
        parts = [f"{component}: {describe(value)}" for component, value in by_component(item)]
        return f"{{{', '.join(parts)}}}"
    special = _special(item)
    return special if special is not None else describe_list(item)


def _is_empty(value: Any, name: str) -> bool:
    if name in HANDLE_FIELDS:
        return value is None
    return any(type(value) is type(one) and value == one for one in EMPTY)


def component_name(number: Any) -> str:
    """A component's name, from the number that records hold."""
    known = {int(kind): kind.name.lower() for kind in ComponentType}
    return known.get(number, str(number)) if type(number) is int else str(number)


def by_component(pairs: list[Any]) -> list[tuple[str, Any]]:
    """The entries of a mapping by component, which is recorded as a list of pairs."""
    return [(component_name(pair[0]), pair[1]) for pair in pairs]


def _text(item: str) -> str:
    is_hash = len(item) == 64 and all(letter in "0123456789abcdef" for letter in item)
    return f"{item[:HASH_SHOWN]}..." if is_hash else item


def _special(item: list[Any]) -> str | None:
    """A key, a digest or a tensor of another type, as `canonical` writes them."""
    match item:
        case ["long", int(count), *_]:
            return f"[{count} items]"
        case ["key", extra_key, cache_salt, bool(is_bigram), list(tokens)]:
            kind = "pairs of " if is_bigram else ""
            place = describe_namespace(extra_key, cache_salt)
            return f"{kind}{describe(tokens)}" + (f" in {place}" if place else "")
        case ["key", limit, list(tokens)]:
            return f"key of {describe(tokens)}" + ("" if limit is None else f", limit {limit}")
        case ["tensor", str(dtype), list(shape), list(values)]:
            return f"{dtype.removeprefix('torch.')}{shape} {describe_list(values)}"
        case ["unknown", str(handle)]:
            return f"no handle ({handle})"
    return None


def describe_namespace(extra_key: str | None, cache_salt: str | None) -> str:
    """A namespace as text; empty for the default one."""
    parts = [] if extra_key is None else [repr(extra_key)]
    return " ".join(parts + ([] if cache_salt is None else [f"salt {cache_salt!r}"]))


def describe_list(items: list[Any], around: int | None = None) -> str:
    """A list as text, the items around a position where it is long, else its first ones."""
    if len(items) <= ITEMS_SHOWN:
        return f"[{', '.join(describe(item) for item in items)}]"
    first, last = 0, ITEMS_SHOWN
    if around is not None and around >= ITEMS_SHOWN - ITEMS_AROUND:
        first, last = around - ITEMS_AROUND, around + ITEMS_AROUND + 1
    before = [f"... {first} before"] if first else []
    after = [f"... {len(items) - last} more"] if len(items) > last else []
    return f"[{', '.join([*before, *map(describe, items[first:last]), *after])}]"


def describe_both(left: Any, right: Any, name: str = "") -> tuple[str, str]:
    """Two values as text, both cut around the first place where they part."""
    texts = describe(left, name), describe(right, name)
    if isinstance(left, list) and isinstance(right, list):
        if _special(left) is None and _special(right) is None:
            place = _first_unequal(left, right)
            texts = describe_list(left, place), describe_list(right, place)
    elif isinstance(left, str) and isinstance(right, str):
        return (left, right) if texts[0] == texts[1] else texts
    if texts[0] == texts[1] and first_difference(left, right) is not None:
        # What the short forms hide is the difference itself: a digest, or a type.
        return f"{texts[0]} ({_raw(left)})", f"{texts[1]} ({_raw(right)})"
    return texts


def _first_unequal(left: list[Any], right: list[Any]) -> int | None:
    pairs = enumerate(zip(left, right, strict=False))
    shorter = min(len(left), len(right))
    default = shorter if len(left) != len(right) else None
    return next((index for index, (one, other) in pairs if one != other), default)


def _raw(item: Any) -> str:
    match item:
        case ["long", _, digest]:
            return f"digest {digest}"
        case list():
            return str(item)[:CALL_CHARACTERS]
    return type(item).__name__


# --- Calls and ops ------------------------------------------------------------------------


def describe_call(call: list[Any]) -> str:
    """One recorded call as text, with the names of its parameters and fields."""
    answer = describe_end(call)
    text = describe_question(call) + (f" -> {answer}" if answer else "")
    return text if len(text) <= CALL_CHARACTERS else f"{text[:CALL_CHARACTERS]}..."


def describe_question(call: list[Any]) -> str:
    """A recorded call without its answer."""
    method, arguments = call[0], call[1]
    if method.endswith(" ="):
        return f"{method} {describe(arguments[0])}"
    shown = ", ".join(f"{name}={describe(item, name)}" for name, item in named(method, arguments))
    return f"{method}({shown})"


def named(method: str, arguments: list[Any]) -> list[tuple[str, Any]]:
    """Recorded arguments with the names of their parameters."""
    names = parameters_of(method)
    pairs: list[tuple[str, Any]] = []
    for index, item in enumerate(arguments):
        if isinstance(item, list) and len(item) == 2 and item[0] in names[index:]:
            pairs.append((item[0], item[1]))  # It was passed by name.
        else:
            pairs.append((names[index] if index < len(names) else str(index), item))
    return pairs


def describe_end(call: list[Any]) -> str:
    """How a recorded call ended: its answer, or the error that it raised."""
    if len(call) < 3:
        return ""
    match call[2]:
        case ["ok", answer]:
            return describe(answer)
        case ["error", kind, None]:
            return f"raises {kind}"
        case ["error", kind, handle]:
            return f"raises {kind}({describe(handle)})"
        case [_, kind, *_]:
            return f"an answer that can't be read ({kind})"
    return ""


def describe_op(op: Op) -> str:
    """An op as text: its kind, and the operands that are not their defaults; runs as `1..9`."""
    plain = msgspec.structs.asdict(op)
    runs = plain.pop("runs", None)
    if runs:
        spans = [
            f"{first}..{first + count - 1}" if count > 1 else str(first) for first, count in runs
        ]
        plain["tokens"] = [*plain["tokens"], *spans]
    required = {
        field.name for field in msgspec.structs.fields(op) if field.required and field.name in plain
    }
    defaults = {
        field.name: field.default_factory() if callable(field.default_factory) else field.default
        for field in msgspec.structs.fields(op)
    }
    shown = [
        f"{name}={_operand(value)}"
        for name, value in plain.items()
        if name in required or value != defaults[name]
    ]
    return f"{kind_of(op)}({', '.join(shown)})"


def _operand(value: Any) -> str:
    if isinstance(value, Namespace):
        return describe_namespace(value.extra_key, value.cache_salt) or "default"
    return describe(value)


# --- Side by side -------------------------------------------------------------------------


def rows_of(left: Any, right: Any, field: str = "") -> list[Row]:
    """Two plain values side by side, records field by field; what both leave empty is left out."""
    parts = _parts(left, right, field.rpartition(".")[2])
    if parts is not None:
        ours, theirs = parts
        rows = []
        for name in dict.fromkeys([*ours, *theirs]):
            place = f"{field}.{name}" if field else name
            rows += rows_of(ours.get(name), theirs.get(name), place)
        return rows
    if _holds_records(left) or _holds_records(right):
        return _rows_of_lists(left, right, field)
    return _leaf(left, right, field)


def _parts(left: Any, right: Any, name: str) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The parts of two values by name, if both are records of one kind or both mappings."""
    if is_record(left) and is_record(right) and left[0] == right[0]:
        return fields_of(left), fields_of(right)
    if isinstance(left, dict) and isinstance(right, dict):
        # The mappings of a snapshot are those by component, and their keys are numbers.
        ours, theirs = (
            {component_name(key): value for key, value in one.items()} for one in (left, right)
        )
        return ours, theirs
    if name in BY_COMPONENT and isinstance(left, list) and isinstance(right, list):
        return dict(by_component(left)), dict(by_component(right))
    return None


def _holds_records(item: Any) -> bool:
    return isinstance(item, list) and any(map(is_record, item))


def _rows_of_lists(left: Any, right: Any, field: str) -> list[Row]:
    """Two lists of records, one row or more for each place in them."""
    if not (isinstance(left, list) and isinstance(right, list)):
        return _leaf(left, right, field)
    rows = []
    for index in range(max(len(left), len(right))):
        place = f"{field}[{index}]"
        if index >= len(left):
            rows.append(Row(field=place, left=MISSING, right=describe(right[index]), differs=True))
        elif index >= len(right):
            rows.append(Row(field=place, left=describe(left[index]), right=MISSING, differs=True))
        elif is_record(left[index]) and is_record(right[index]):
            mine, theirs = left[index][0], right[index][0]
            if mine != theirs:
                rows += _leaf(left[index], right[index], place)
            else:
                rows += rows_of(left[index], right[index], f"{place} {mine}")
        else:
            rows += _leaf(left[index], right[index], place)
    return rows


def _leaf(left: Any, right: Any, field: str) -> list[Row]:
    differs = first_difference(left, right) is not None
    name = field.rpartition(".")[2]
    if not differs and _is_empty(left, name):
        return []
    if is_record(left) or is_record(right):
        texts = describe(left), describe(right)
    else:
        texts = describe_both(left, right, name)
    return [Row(field=field, left=texts[0], right=texts[1], differs=differs)]
