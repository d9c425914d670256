"""Every part of the contract has a rule, and every pattern of a rule decides about something."""

from __future__ import annotations

import ast
import re
import sys
import types
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest

from treedrift.backends import contract, inspection
from treedrift.backends.contract import InsertParams, TreeCore, errors, results
from treedrift.harness import rules
from treedrift.harness.compare import NODE_FACTS, SIZE_NAMES, Divergence
from treedrift.harness.recorder import PROPERTIES, SETTINGS, parameters_of, recorded_methods
from treedrift.harness.rule_pattern import Pattern
from treedrift.harness.rule_patterns import PATTERNS
from treedrift.harness.rule_texts import RULE_TEXTS
from treedrift.harness.rules import place_of, rule_numbered, rule_of, words_of
from treedrift.harness.state_texts import STATE_TEXTS
from treedrift.harness.trace import OP_TYPES, read_trace
from treedrift.harness.window_texts import WINDOW_TEXTS
from treedrift.models.drills import DRILLS

KNOWN = Path(__file__).parents[2] / "corpora/known"
HARNESS = Path(rules.__file__).parent
ERRORS = [*(name for name in vars(errors) if name.endswith("Error")), "TypeError", "OverflowError"]
HOST_TIER = {"PoolTransfer", "PoolTransferResult", "StorageBackupSpec"}
"""Records whose methods have a rule, and whose fields are compared by none of them alone."""

COMPONENTS = ("full", "swa", "auxiliary_swa", "mamba")
"""Components as places name them."""

MODEL_FILES = ("model_", "reference_model")
"""How the files of the reference model begin."""

TREE_PARTS = [
    "nodes.length",
    "values",
    "total",
    "order.length",
    "free",
    "window_free.swa",
    "state_free",
    "rows",
    "healthy",
    "settings",
    "compatible",
]
FAILED = ["refused.ValueError|None", "crash.it ended", "hang.no answer", "memory.too much"]


def divergence(where: str, op_kind: str = "ask", **fields: Any) -> Divergence:
    kind = fields.pop("kind", "difference")
    return Divergence(
        pair=("python", "rust"), kind=kind, op_index=0, op_kind=op_kind, where=where, **fields
    )


# --- All places of the contract -----------------------------------------------------------


def method_of(name: str) -> Any:
    item = vars(TreeCore)[name]
    return item.fget if isinstance(item, property) else item


Place = tuple[str, tuple[str, ...]]
"""A place as a comparison spells it, and the fields of records that lead to it."""


def unfold(kind: Any, place: str, fields: tuple[str, ...] = ()) -> Iterator[Place]:
    """Every place in a value of a type."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        records = [one for one in inner if is_record(one)]
        if len(records) > 1:
            yield f"{place}.type", fields
        if types.NoneType in inner:
            yield place, fields
        for one in inner:
            yield from unfold(one, place, fields)
    elif origin in (list, tuple):
        yield f"{place}.length", fields
        yield from unfold(inner[0], place, fields)
    elif origin is dict:
        for component in COMPONENTS:
            yield from unfold(inner[1], f"{place}.{component}", fields)
    elif is_record(kind):
        # The interpreter itself can't read the type of an array, which one field has.
        hints = get_type_hints(kind, {**vars(sys.modules[kind.__module__]), "array": list})
        for name in kind.__struct_fields__:
            inside = fields if kind.__name__ in HOST_TIER else (*fields, name)
            yield from unfold(hints[name], f"{place}.{name}", inside)
    elif kind is not types.NoneType:
        yield place, fields


def is_record(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


@cache
def call_places() -> list[Place]:
    """Every place in a call, and the fields that lead there."""
    found: list[Place] = []
    for name in [*recorded_methods(), *PROPERTIES]:
        declared = get_type_hints(method_of(name))["return"]
        found += list(unfold(declared, f"call.{name}.result"))
        found += [(f"call.{name}.{parameter}", ()) for parameter in parameters_of(name)]
        found += [(f"call.{name}.ok|{error}", ()) for error in ERRORS]
        found += [(f"call.{name}.error.handle", ()), (f"extra.{name}", ())]
    found += [(f"call.{name} =.ok|{error}", ()) for name in SETTINGS for error in ERRORS]
    found += [(f"call.begin_insert.params.{name}", ()) for name in InsertParams.__struct_fields__]
    found += [("call.evict_excess_path_states.filled", ()), ("call.take_events.grouping.X", ())]
    return found


@cache
def other_places() -> list[Place]:
    """Every place outside a call."""
    node = unfold(inspection.NodeSnapshot, "snapshot.nodes")
    tops = [
        (place, fields)
        for place, fields in unfold(inspection.TreeSnapshot, "snapshot")
        if fields[0] != "nodes"
    ]
    path = unfold(results.TreePathNodeInfo, "tree.paths")
    found: list[Place] = [(place, ()) for place, _ in path]
    found += [(f"tree.node.{name}", (name,)) for name in NODE_FACTS]
    found += [(f"sizes.{name}", (name,)) for name in SIZE_NAMES]
    found += [(f"tree.{name}", ()) for name in TREE_PARTS]
    found += [(f"oracle.{finding}", ()) for finding in findings()]
    found += [(f"outcome.ok|{error}", ()) for error in ERRORS]
    found += [(place, ()) for place in ("snapshot.nodes.length", "pool", "method", *FAILED)]
    return [*node, *tops, *found]


def findings() -> Iterator[str]:
    """Every finding that the harness can make, read from its source."""
    for path in sorted(HARNESS.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        named = texts_by_name(tree)
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            told = [texts_of(argument, named) for argument in node.args]
            if path.name.startswith(MODEL_FILES) and name in ("_find", "_expect"):
                # What is expected is told behind its name, which is no text of its own.
                yield from [f"reference_model: {one}" for one in told[0] if one not in UNTOLD]
            elif name.endswith("Finding"):
                yield from [f"{told[0][0]}: {one}" for one in told[1] if one not in UNTOLD]
    yield from (f"{oracle}: {VARIABLE}" for oracle in ("pool", "cache", "sanity_check", "crash"))


def texts_by_name(tree: ast.AST) -> dict[str, list[str]]:
    """Texts that the variables of a module are given."""
    found: dict[str, list[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found.setdefault(node.targets[0].id, []).extend(texts_of(node.value, {}))
    return found


def texts_of(message: ast.expr, named: dict[str, list[str]]) -> list[str]:
    """A text as the source tells it, what varies replaced by each thing that it may be."""
    if isinstance(message, ast.Name):
        return named.get(message.id, [VARIABLE])
    text = text_of(message)
    if not isinstance(message, ast.JoinedStr) or VARIABLE not in text or text in UNTOLD:
        return [text]
    return [text, *[text.replace(VARIABLE, one) for one in VARYING]]


VARIABLE = "1"
"""What stands for a part of a text that the source does not tell."""

UNTOLD = (VARIABLE, f"{VARIABLE} is {VARIABLE}, must be {VARIABLE}")
"""Texts that are all variable."""

WISHES = ("FreeDeviceKV", "SWARebuild", "RecoverSWAWithLockedFull", "MambaEvictExcessPathStates")
VARYING = ("full", "swa", "mamba", "swa ", "mamba ", "swa evictable", "mamba evictable", *WISHES)
"""What a variable part may be."""


def text_of(message: ast.expr) -> str:
    if isinstance(message, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else VARIABLE
            for part in message.values
        )
    return str(message.value) if isinstance(message, ast.Constant) else VARIABLE


def all_places() -> list[Place]:
    return call_places() + other_places()


def fitting(place: str) -> list[Pattern]:
    return [one for one in PATTERNS if fnmatchcase(place, one.place)]


# --- The table ----------------------------------------------------------------------------


def test_every_method_of_the_contract_has_a_rule() -> None:
    for name in [*recorded_methods(), *PROPERTIES]:
        assert rule_of(divergence(f"calls[0].{name}.result")) is not None, name


def test_every_place_has_a_rule_whatever_differs_there() -> None:
    bare = [
        place for place, _ in all_places() if not any(one.about is None for one in fitting(place))
    ]
    assert bare == []


def test_every_field_of_a_record_is_named_by_a_pattern() -> None:
    unnamed = [
        place
        for place, fields in all_places()
        if fields and not any(names(one, fields) for one in fitting(place))
    ]
    assert unnamed == []


def names(pattern: Pattern, fields: tuple[str, ...]) -> bool:
    """Whether a pattern is about one of the fields, or about a record that is always the same."""
    if pattern.rule == "MATCH-1":
        return True
    words = re.split(r"\W+", pattern.place)
    return any(field in words for field in fields)


def test_every_pattern_decides_about_something() -> None:
    winners = set()
    for place, _ in all_places():
        fits = fitting(place)
        situations = {(one.op, one.about) for one in fits}
        for op, about in situations:
            winners.add(
                next(one for one in fits if one.about in (None, about) and one.op in ("*", op))
            )
    idle = [one for one in PATTERNS if one not in winners]
    assert idle == []


def test_patterns_name_real_ops_and_real_records() -> None:
    for one in PATTERNS:
        assert any(fnmatchcase(kind, one.op) for kind in OP_TYPES), one
        assert one.about in (None, "None", "length", *COMPONENTS, *vars(contract)), one


def test_every_rule_has_a_number_and_one_sentence() -> None:
    for number, text in RULE_TEXTS.items():
        assert re.fullmatch(r"[A-Z]+(\d\d)?-[A-Z]?\d+", number)
        assert text.endswith(".")
        assert text[0].isupper()
        assert text.count(". ") == 0


def test_every_rule_that_patterns_the_ledger_or_a_drill_name_has_a_text() -> None:
    assert named_rules() - RULE_TEXTS.keys() == set()


def test_other_texts_are_those_of_windows_and_states() -> None:
    told = RULE_TEXTS.keys() - WINDOW_TEXTS.keys() - STATE_TEXTS.keys()
    assert told - named_rules() == set()
    assert {number.partition("-")[0] for number in WINDOW_TEXTS} == {"SWA"}
    assert {number.partition("-")[0] for number in STATE_TEXTS} == {"MAM"}


def test_no_two_rules_say_the_same() -> None:
    assert len(set(RULE_TEXTS.values())) == len(RULE_TEXTS)


def named_rules() -> set[str]:
    """Rules that a user can meet: in a divergence, in the ledger and with a drill."""
    decide = {one.rule for one in PATTERNS}
    known = {read_trace(path).header.rule for path in sorted(KNOWN.glob("*.jsonl"))}
    drilled = {drill.rule for drill in DRILLS.values()}
    return {number for number in decide | known | drilled if number}


# --- What decides -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "rule"),
    [
        (divergence("calls[2].match_prefix.result.device_prefix_len"), "MATCH-9"),
        (divergence("calls[2].match_prefix.result.cache_actions[0].new_node_id"), "MATCH-13"),
        (divergence("calls[0].inc_lock_ref.ok|UnknownNodeError"), "NODE-5"),
        (divergence("calls[0].inc_lock_ref.UnknownNodeError|ok"), "NODE-5"),
        (divergence("calls[0].begin_insert.ok|InsertProtocolError"), "INS-1"),
        (divergence("calls[0].resume_insert.ok|InsertProtocolError"), "INS-3"),
        (divergence("calls[4].evict_device_next_node.result.node_id", left=3, right=5), "POL-4"),
        (
            divergence("calls[4].evict_device_next_node.result.node_id", left=None, right=5),
            "EVD-13",
        ),
        (
            divergence("calls[0].begin_insert.result.actions[0].type", left="BackupKV", right="X"),
            "INS-53",
        ),
        (
            divergence(
                "calls[0].begin_insert.result.actions.length",
                left=[["FreeDeviceKV", [[1]]]],
                right=[],
            ),
            "INS-31",
        ),
        (divergence("calls[0].begin_insert.result.actions[0].indices[0][1]"), "INS-31"),
        (divergence("calls[0].component_evictable_size.result"), "SIZE-1"),
        (divergence("calls[0].component_evictable_size(swa).result"), "SWA-D5"),
        (divergence("calls[0].component_evictable_size(mamba).result"), "MAM-D4"),
        (divergence("calls[3].evict_device_next_node(swa).result.node_id"), "SWA-E5"),
        (divergence("calls[3].evict_device_leaf.result.device_frees.mamba[0][0]"), "MAM-A2"),
        (
            divergence(
                "calls[0].begin_insert.result.actions[1].type",
                left="SWARebuild",
                right="FreeDeviceKV",
            ),
            "SWA-I12",
        ),
        (divergence("sizes.mamba_free", "finish"), "MAM-A3"),
        (divergence("snapshot.nodes[2].lock_ref.swa", "unlock"), "SWA-L7"),
        (divergence("tree.node.swa_value"), "SWA-D2"),
        (divergence("snapshot.lru_lists.swa[3]", "arrive"), "SWA-U2"),
        (divergence("snapshot.lru_lists.mamba[3]", "store_value"), "MAM-I15"),
        (divergence("snapshot.nodes[2].device_lock_uuid.swa", "core_match"), "SWA-S4"),
        (divergence("snapshot.nodes[2].device_lock_uuid.swa", "lock"), "SWA-L2"),
        (divergence("calls[3].evict_device_next_node(swa).result.device_frees.swa"), "SWA-E6"),
        (divergence("calls[3].evict_device_next_node(swa).result.device_frees.mamba"), "SWA-E8"),
        (divergence("calls[3].evict_device_next_node(mamba).result.device_frees.swa"), "MAM-D7"),
        (
            divergence("calls[3].evict_device_leaf.result.device_frees.swa", left=[[1]]),
            "SWA-E9",
        ),
        (
            divergence("calls[0].begin_insert.params.component_evicted_seqlens.swa", "finish"),
            "SWA-Q1",
        ),
        (divergence("calls[1].evict_excess_path_states.filled[0][0].length"), "MAM-P6"),
        (divergence("reference_model: size of mamba is 1, must be 2", kind="oracle"), "MAM-V3"),
        (divergence("calls[0].take_events.grouping.BlockRemoved"), "EVT-20"),
        (divergence("calls.end_insert"), "INS-7"),
        (divergence("calls[3].method"), "CTL-50"),
        (divergence("snapshot.nodes[0].access_rank", "touch"), "NODE-23"),
        (divergence("snapshot.nodes[0].access_rank", "core_insert"), "INS-45"),
        (divergence("snapshot.nodes[0].lock_ref.full", "unlock"), "LOCK-10"),
        (divergence("tree.node.device_value", left=[1, 2], right=[1]), "SPLIT-2"),
        (divergence("tree.node.device_value", left=[1, 2], right=[1, 3]), "CTL-24"),
        (divergence("conservation: sizes differ: evictable 3", kind="oracle"), "SIZE-1"),
        (divergence("conservation: pages that nobody owns: [1]", kind="oracle"), "CTL-60"),
        (divergence("None|InvalidArgumentError", "open", kind="refused"), "CFG-1"),
    ],
    ids=lambda value: value if isinstance(value, str) else place_of(value),
)
def test_the_rule_follows_from_the_place_and_what_differs(found: Divergence, rule: str) -> None:
    decides = rule_of(found)
    assert decides is not None
    assert decides.number == rule


def test_a_place_that_nobody_knows_has_no_rule() -> None:
    assert rule_of(divergence("weather")) is None


def test_a_rule_without_a_text_keeps_its_number() -> None:
    assert rule_numbered("INS-999").text is None
    assert rule_numbered("INS-31").text == RULE_TEXTS["INS-31"]


def test_words_are_what_sets_two_values_apart() -> None:
    free, backup = ["FreeDeviceKV", [[1]]], ["BackupKV", [3]]
    assert words_of([free, backup], [free]) == {"BackupKV", "length"}
    assert words_of("BackupKV", "FreeDeviceKV") == {"BackupKV", "FreeDeviceKV"}
    assert words_of(None, 3) == {"None"}
    assert words_of(2, 3) == set()
