"""Errors and fields of a release, as the plug reads them; no SGLang is needed here."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

import msgspec
import pytest

from treedrift.backends.contract import (
    AncestorError,
    AuxiliaryWindow,
    CacheInitParams,
    ComponentType,
    ContractError,
    CorePoisonedError,
    InsertProtocolError,
    InvalidArgumentError,
    SanityCheckError,
    UnknownNodeError,
    UnsupportedError,
)
from treedrift.backends.sglang.call import PANIC, ReleasedCall, translated
from treedrift.backends.sglang.components import published, refuse_unplugged
from treedrift.backends.sglang.release import REQUIRED, fields_of, lacking_methods


class Component(IntEnum):
    """Stands for the release's own enumeration of components."""

    SWA = 1


class PanicException(BaseException):
    """What older releases let out of a native panic."""


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "method", "kind"),
    [
        (KeyError(7), "is_root", UnknownNodeError),
        (KeyError(Component.SWA), "evict_device_start", ContractError),
        (AssertionError("no"), "demote", ContractError),
        (AssertionError("no"), "sanity_check", SanityCheckError),
        (AttributeError("no"), "collect_full_device_indices", ContractError),
        (ValueError("no"), "begin_insert", InvalidArgumentError),
        (IndexError("no"), "begin_insert", InvalidArgumentError),
        (NotImplementedError("no"), "node_by_id", UnsupportedError),
        (RuntimeError("busy"), "begin_insert", InsertProtocolError),
        (RuntimeError("none"), "resume_insert", InsertProtocolError),
        (RuntimeError("no"), "mark_external_cache_stored_path", AncestorError),
        (RuntimeError(f"{PANIC}: no"), "begin_insert", CorePoisonedError),
        (PanicException("no"), "dec_full_pin", CorePoisonedError),
    ],
)
def test_a_released_error_becomes_the_contracts(
    error: BaseException, method: str, kind: type[Exception]
) -> None:
    assert type(translated(error, method, Component)) is kind


@pytest.mark.parametrize(
    "error",
    [
        TypeError("no"),
        OverflowError("no"),
        UnicodeEncodeError("utf-8", "\ud800", 0, 1, "no"),
        KeyboardInterrupt(),
        caused(RuntimeError("can't load the hash library"), OSError("no compiler")),
        RuntimeError("something else"),
    ],
)
def test_what_is_no_answer_of_a_core_stays_what_it_is(error: BaseException) -> None:
    method = "begin_insert" if error.__cause__ else "is_root"
    assert translated(error, method, Component) is error


def test_an_unknown_node_keeps_its_handle() -> None:
    assert translated(KeyError(2**40), "is_root", Component).args == (2**40,)


@dataclass
class AsDataclass:
    """Fields of a dataclass."""

    needed: int
    plain: int = 3
    made: list[int] = field(default_factory=list)


class AsStruct(msgspec.Struct):
    """Fields of a msgspec struct."""

    needed: int
    plain: int = 3
    made: list[int] = msgspec.field(default_factory=list)


class AsTuple(NamedTuple):
    """Fields of a named tuple."""

    needed: int
    plain: int = 3


@pytest.mark.parametrize("kind", [AsDataclass, AsStruct, AsTuple])
def test_fields_are_read_with_their_defaults(kind: Any) -> None:
    found = fields_of(kind)
    assert found.pop("needed") is REQUIRED
    assert found.pop("plain")() == 3
    assert all(made() == [] for made in found.values())


def test_a_required_keyword_after_optional_ones_stays_required() -> None:
    class Late(msgspec.Struct, kw_only=True):
        early: int = 1
        late: int

    assert fields_of(Late)["late"] is REQUIRED
    assert fields_of(Late)["early"]() == 1


class OldCore:
    """A core that knows one method, with a parameter less than the contract's."""

    def dec_lock_ref(self, node_id: int, params: Any) -> str:
        return "released"


def old_call() -> ReleasedCall:
    methods, parameters = lacking_methods(OldCore)
    return ReleasedCall(OldCore(), Component, methods, parameters)


def test_a_method_that_the_release_lacks_is_unsupported_by_name() -> None:
    with pytest.raises(UnsupportedError, match="no collect_path_info"):
        old_call()("collect_path_info", [])


def test_a_parameter_that_the_release_lacks_is_unsupported_only_when_given() -> None:
    call = old_call()
    assert call.lacks("dec_lock_ref", "skip_swa")
    assert call("dec_lock_ref", 1, None) == "released"
    with pytest.raises(UnsupportedError, match="skip_swa"):
        call("dec_lock_ref", 1, None, skip_swa=True)


def test_time_in_the_released_core_adds_up() -> None:
    call = old_call()
    call("dec_lock_ref", 1, None)
    first = call.core_ns
    call("dec_lock_ref", 1, None)
    assert 0 < first < call.core_ns


FULL, SWA, MAMBA = ComponentType.FULL, ComponentType.SWA, ComponentType.MAMBA
SECOND = ComponentType.AUXILIARY_SWA


@pytest.mark.parametrize("components", [(FULL,), (FULL, SWA), (FULL, MAMBA), (FULL, SWA, MAMBA)])
def test_stock_trees_are_plugged_in(components: tuple[ComponentType, ...]) -> None:
    refuse_unplugged(CacheInitParams(tree_components=components))


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"tree_components": (FULL, SWA, SECOND)}, "second window"),
        ({"component_registry_override": {SECOND: AuxiliaryWindow(2)}}, "second window"),
        ({"tree_components": (FULL, ComponentType.C128)}, "C128"),
    ],
)
def test_other_trees_are_refused_with_the_reason(more: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        refuse_unplugged(CacheInitParams(**more))


def test_server_arguments_are_published_for_states_alone() -> None:
    with published(CacheInitParams(tree_components=(FULL, SWA))):
        pass
    # No SGLang is here: what a release keeps elsewhere is told by name.
    with pytest.raises(UnsupportedError, match="runtime_context"):
        published(CacheInitParams(tree_components=(FULL, MAMBA)))
