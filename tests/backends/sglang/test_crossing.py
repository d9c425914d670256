"""Values that cross between the contract and a stand-in release, both ways, field by field."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Sequence
from enum import IntEnum
from random import Random
from typing import Any

import pytest
import torch

from tests.backends.sglang.stand_in_release import stand_in, stand_in_type
from tests.backends.sglang.values_that_cross import make_struct, parts, plain
from treedrift.backends.contract import (
    CacheInitParams,
    ComponentType,
    DecLockRefParams,
    FreeDeviceKV,
    Frees,
    InsertParams,
    MatchResult,
    PoolTransfer,
    RadixKey,
    UnsupportedError,
)
from treedrift.backends.python_core import PythonTreeCore
from treedrift.backends.sglang.crossing import Crossing
from treedrift.backends.sglang.pairing import note_lacking, paired_types
from treedrift.backends.sglang.release import REQUIRED, Release, ReleaseMismatchError

SWA = ComponentType.SWA
TYPES = sorted(paired_types())
NEW = {"brand_new": 0}


def crossings(release: Release, owns: bool = True) -> tuple[Crossing, Crossing]:
    outward = Crossing(release, inward=False, owns=owns)
    return outward, Crossing(release, inward=True, owns=owns)


def key(*tokens: int, **more: Any) -> RadixKey:
    return RadixKey(array("q", tokens), **more)


@pytest.mark.parametrize("name", TYPES)
def test_a_value_of_every_type_survives_both_crossings(name: str) -> None:
    release = stand_in()
    outward, inward = crossings(release)
    chance = Random(7)
    for _ in range(20):
        ours = make_struct(paired_types()[name], chance)
        if name == "CacheInitParams":
            # The server publishes these apart from the parameters (CFG-5).
            ours.mamba_cache_chunk_size, ours.mamba_max_states_per_path = None, -1
        theirs = inward.struct(ours)
        assert type(theirs) is release.type(name)
        assert not [part for part in parts(theirs) if "treedrift" in type(part).__module__]
        back = outward.struct(theirs)
        assert type(back) is type(ours)
        if name == "MatchPrefixParams":
            back.req = ours.req
        assert plain(back) == plain(ours)


@pytest.mark.parametrize("name", TYPES)
def test_a_field_that_only_the_release_has_is_refused_by_name_off_its_default(name: str) -> None:
    release = stand_in(**{name: stand_in_type(name, more=NEW)})
    outward, inward = crossings(release)
    theirs = inward.struct(make_struct(paired_types()[name], Random(3)))
    assert theirs.brand_new == 0
    assert type(outward.struct(theirs)) is paired_types()[name]
    theirs.brand_new = 1
    with pytest.raises(ReleaseMismatchError, match=rf"no place for {name}\.brand_new"):
        outward.struct(theirs)


def test_fields_of_sglangs_cache_are_no_business_of_a_core() -> None:
    outward, inward = crossings(
        stand_in(
            CacheInitParams=stand_in_type("CacheInitParams", {"disable": REQUIRED, "pp_rank": 0})
        )
    )
    theirs = inward.struct(CacheInitParams(page_size=4))
    assert theirs.disable is False
    theirs.disable, theirs.pp_rank = True, 3
    assert outward.struct(theirs).page_size == 4


def test_a_field_that_the_release_lacks_is_noted_and_holds_its_default() -> None:
    lacking = frozenset({"inserted_len", "session_id"})
    release = stand_in(InsertParams=stand_in_type("InsertParams", less=lacking))
    note_lacking(release)
    assert release.missing == {"InsertParams.inserted_len", "InsertParams.session_id"}
    outward, inward = crossings(release)
    theirs = inward.struct(InsertParams(key=key(1), inserted_len=5, session_id="s", priority=2))
    back = outward.struct(theirs)
    assert (back.inserted_len, back.session_id, back.priority) == (0, None, 2)


def test_a_required_field_that_the_release_lacks_holds_nothing() -> None:
    less = frozenset({"num_children", "full_value_len"})
    outward, inward = crossings(
        stand_in(TreePathNodeInfo=stand_in_type("TreePathNodeInfo", less=less))
    )
    ours = make_struct(paired_types()["TreePathNodeInfo"], Random(1))
    back = outward.struct(inward.struct(ours))
    assert (back.num_children, back.full_value_len) == (0, None)
    assert back.path_end == ours.path_end


@pytest.mark.parametrize(
    ("ours", "field"),
    [
        (CacheInitParams(draft_swa_window=3), "draft_swa_window"),
        (key(1, 2, cache_salt="salt"), "cache_salt"),
    ],
)
def test_what_a_release_lacks_is_refused_where_nothing_does_without_it(
    ours: Any, field: str
) -> None:
    name = type(ours).__name__
    lacking = stand_in_type(name, less=frozenset({field}))
    _, inward = crossings(stand_in(**{name: lacking}))
    with pytest.raises(UnsupportedError, match=rf"no {name}\.{field}"):
        inward.struct(ours)
    inward.struct(CacheInitParams() if name == "CacheInitParams" else key(1))


def test_a_type_that_the_release_lacks_is_noted_and_refused() -> None:
    release = stand_in(FreeDeviceKV=None)
    note_lacking(release)
    assert release.missing == {"contract.FreeDeviceKV"}
    _, inward = crossings(release)
    with pytest.raises(UnsupportedError, match="no FreeDeviceKV"):
        inward.struct(FreeDeviceKV([torch.tensor([1])]))


def test_a_field_that_a_release_demands_is_named_when_it_is_needed() -> None:
    demanding = stand_in_type("PoolTransfer", {"lane": REQUIRED})
    _, inward = crossings(stand_in(PoolTransfer=demanding))
    transfer = make_struct(PoolTransfer, Random(1))
    with pytest.raises(ReleaseMismatchError, match=r"PoolTransfer .* demands \['lane'\]"):
        inward.struct(transfer)


def test_a_match_that_is_told_with_its_slots_says_how_many() -> None:
    told = stand_in_type(
        "MatchResult", {"device_indices": REQUIRED}, frozenset({"device_prefix_len"})
    )
    release = stand_in(MatchResult=told)
    note_lacking(release)
    assert not release.missing
    outward, inward = crossings(release)
    theirs = inward.struct(MatchResult(3, 1, 1, 1))
    assert theirs.device_indices.shape == (3,)
    assert outward.struct(theirs).device_prefix_len == 3


@pytest.mark.parametrize("number", [None, 5])
def test_a_receipt_that_knows_one_window_is_one_of_the_window(number: int | None) -> None:
    told = stand_in_type(
        "DecLockRefParams",
        {"swa_uuid_for_lock": None, "swa_uuid_for_host_lock": None},
        frozenset({"component_lock_uuids", "component_host_lock_uuids"}),
    )
    outward, inward = crossings(stand_in(DecLockRefParams=told))
    theirs = inward.struct(DecLockRefParams(3, component_lock_uuids={SWA: number}))
    assert (theirs.node_id, theirs.swa_uuid_for_lock) == (3, number)
    assert outward.struct(theirs).component_lock_uuids == {SWA: number}


def test_an_insert_that_knows_one_window_tells_its_evicted_length() -> None:
    told = stand_in_type(
        "InsertParams", {"swa_evicted_seqlen": 0}, frozenset({"component_evicted_seqlens"})
    )
    outward, inward = crossings(stand_in(InsertParams=told))
    for lengths in ({SWA: 4}, {}):
        ours = InsertParams(key=key(1), component_evicted_seqlens=lengths)
        theirs = inward.struct(ours)
        assert theirs.swa_evicted_seqlen == lengths.get(SWA, 0)
        assert outward.struct(theirs).component_evicted_seqlens == lengths


def test_an_insert_of_a_chunk_counts_no_hit() -> None:
    lacking = frozenset({"inserted_len"})
    told = stand_in_type("InsertParams", {"chunked": False}, lacking)
    release = stand_in(InsertParams=told)
    note_lacking(release)
    assert release.missing == {"InsertParams.inserted_len"}
    outward, inward = crossings(release)
    for is_chunked, hits in ((True, 0), (False, 1)):
        theirs = told(key=inward.struct(key(1, 2)), value=torch.tensor([5, 6]), chunked=is_chunked)
        ours = outward.struct(theirs)
        assert inward.struct(ours).chunked is is_chunked
        core = PythonTreeCore(CacheInitParams())
        core.enable_external_cache_linker, core.write_through_threshold = True, 1
        # The first hit of a leaf asks for its offload.
        assert len(core.begin_insert(ours).actions) == hits
    assert inward.struct(InsertParams(key=key(1), inserted_len=1)).chunked is False


def test_a_member_that_only_the_release_has_is_refused_by_name() -> None:
    new = IntEnum("ComponentType", {"FULL": 0, "TURBO": 9})
    outward, _ = crossings(stand_in(ComponentType=new))
    assert outward.of(ComponentType)(new["FULL"]) is ComponentType.FULL
    with pytest.raises(ReleaseMismatchError, match="TURBO"):
        outward.of(dict[ComponentType, int])({new["TURBO"]: 1})


def test_what_is_no_value_of_the_contract_is_for_the_core_to_refuse() -> None:
    outward, inward = crossings(stand_in())
    strange = object()
    assert inward.struct(strange) is strange
    assert inward.of(ComponentType)(77) == 77
    with pytest.raises(ReleaseMismatchError, match="no place for a object"):
        outward.struct(strange)
    assert outward.struct(None) is None


@pytest.mark.parametrize("owns", [True, False])
def test_only_copies_leave_nothing_shared(owns: bool) -> None:
    release = stand_in()
    outward, inward = crossings(release, owns)
    ours = InsertParams(key=key(1, 2), value=torch.tensor([5, 6]))
    for crossed in (inward.struct(ours), outward.struct(inward.struct(ours))):
        assert (crossed.value is ours.value) is not owns
        assert (crossed.key.token_ids is ours.key.token_ids) is not owns
        assert crossed.key is not ours.key


@pytest.mark.parametrize("name", TYPES)
def test_a_copy_of_any_type_shares_nothing_that_can_change(name: str) -> None:
    outward, inward = crossings(stand_in())
    chance = Random(11)
    for _ in range(5):
        theirs = inward.struct(make_struct(paired_types()[name], chance))
        ours = outward.struct(theirs)
        assert not changeable(theirs) & changeable(ours)


def changeable(value: Any) -> set[int]:
    """The containers and tensors of a value, which must live as long as they are compared."""
    kinds = (list, dict, array, torch.Tensor)
    return {id(part) for part in parts(value) if isinstance(part, kinds)}


@pytest.mark.parametrize(
    ("kind", "given"),
    [(list[int], [1, 2]), (Sequence[int], [1, 2]), (dict[str, int], {"one": 1})],
)
def test_a_copy_of_a_plain_container_is_another_one(kind: Any, given: Any) -> None:
    crossed = crossings(stand_in())[0].of(kind)(given)
    assert crossed is not given
    assert type(given)(crossed) == given


def test_a_copy_leaves_the_request_of_a_match_behind() -> None:
    release = stand_in()
    theirs = release.type("MatchPrefixParams")(key=None, req=object())
    assert crossings(release, owns=True)[0].struct(theirs).req is None
    assert crossings(release, owns=False)[0].struct(theirs).req is theirs.req


def test_maps_that_make_lists_on_access_stay_so() -> None:
    name = "DemoteResult"
    frees = {"device_frees": defaultdict(list)}
    release = stand_in(DemoteResult=stand_in_type(name, frees, frozenset({"device_frees"})))
    _, inward = crossings(release)
    theirs = inward.struct(paired_types()[name](device_frees={ComponentType.FULL: []}))
    assert theirs.device_frees[release.type("ComponentType").MAMBA] == []


def test_a_component_that_freed_nothing_has_no_entry() -> None:
    release = stand_in()
    theirs = release.type("ComponentType")
    tensor = torch.tensor([4])
    found = crossings(release)[0].of(Frees)({theirs.FULL: [tensor], theirs.SWA: []})
    assert list(found) == [ComponentType.FULL]
    assert [part.tolist() for part in found[ComponentType.FULL]] == [[4]]
