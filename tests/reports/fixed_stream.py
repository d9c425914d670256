"""The events of one made-up run that has everything a report must cope with.

Two new kinds (one shrunk and explained, one told by a killed run with nothing but its values), a
known one, a ledger entry that has vanished, and text that would be markup if it were not escaped.
"""

from __future__ import annotations

from treedrift.harness.compare import Divergence
from treedrift.harness.events import (
    Canary,
    Checkpoint,
    Event,
    Explained,
    Finished,
    Found,
    Judged,
    LedgerChecked,
    Sample,
    Shrunk,
    Started,
)
from treedrift.harness.explanation import Explanation, OpLine, Row, SideView, TreeNode
from treedrift.harness.tally import Tally

PAIR = ("sglang-python@0.5.23", "sglang-rust@0.5.23")

HOSTILE_TEXT = "<script>alert('tokens')</script>"
"""A core's own text, which no report may take for markup."""


def tally(share: float = 1.0) -> Tally:
    """The counts of the run after a share of it."""
    seen = {
        "match.hit": 90_000,
        "match.miss": 20_000,
        "match.split": 9_000,
        "insert.fresh": 21_000,
        "insert.overlap": 17_000,
        "evict.leaf": 30_000,
        "evict.offered": 31_000,
        "lock.moved": 40_000,
    }
    behaviours = {name: round(count * share) for name, count in seen.items()}
    if share > 0.3:
        behaviours |= {"drop.dropped": 120, "event.BlockStored": 8_000}
    if share > 0.7:
        behaviours["event.BlockRemoved"] = 5_000
    behaviours |= {"requests": 12_000, "hit_tokens": 300_000, "prompt_tokens": 1_200_000}
    return Tally(
        op_count=round(200_000 * share),
        cases=round(1_900 * share),
        op_kinds={
            "arrive": round(30_000 * share),
            "evict": 9_000,
            "core_match": 50_000,
            "ask": 3_000,
        },
        policies={"lru": 900, "lfu": 500, "slru": 500},
        behaviours=behaviours,
        core_seconds={PAIR[0]: 40.0 * share, PAIR[1]: 9.5 * share},
        side_seconds={PAIR[0]: 200.0 * share, PAIR[1]: 180.0 * share},
    )


EVICTION = Divergence(
    pair=PAIR,
    kind="difference",
    op_index=57,
    op_kind="evict",
    where="calls[0].evict_device_next_node.result.node_id",
    left=3,
    right=4,
    file="runs/nightly/findings/eviction-7.jsonl",
)
CRASH = Divergence(
    pair=PAIR,
    kind="crash",
    op_index=None,
    op_kind="drain",
    where=f"worker ended with signal 11 {HOSTILE_TEXT}",
    side=PAIR[1],
    file="runs/nightly/findings/crash-8.jsonl",
)
GROUPING = Divergence(
    pair=PAIR,
    kind="difference",
    op_index=12,
    op_kind="drain_events",
    where="calls[1].take_events.grouping",
    left=[["BlockRemoved", [1, 2]]],
    right=[["BlockRemoved", [1]], ["BlockRemoved", [2]]],
    file="runs/nightly/findings/grouping-9.jsonl",
    is_soft=True,
)

ROOT = TreeNode(handle=0, parent=None, depth=0, label="root")
BEFORE = [
    ROOT,
    TreeNode(handle=2, parent=0, depth=1, label="1 2 3 4", slots="1 to 4", facts=["locked 1"]),
    TreeNode(handle=3, parent=2, depth=2, label="5 6", slots="5 6", facts=["leaf", "hits 1"]),
    TreeNode(handle=4, parent=2, depth=2, label="7 8", slots="7 8", facts=["leaf"]),
    TreeNode(handle=5, parent=0, depth=1, label=HOSTILE_TEXT, slots="9", facts=["leaf"]),
]


def after(victim: int) -> list[TreeNode]:
    """The tree once one of the two leaves has gone."""
    return [
        TreeNode(
            handle=node.handle,
            parent=node.parent,
            depth=node.depth,
            label=node.label,
            slots=node.slots,
            facts=node.facts,
            is_concerned=node.handle in (3, 4),
        )
        for node in BEFORE
        if node.handle != victim
    ]


EXPLANATION = Explanation(
    pair=PAIR,
    signature=EVICTION.signature,
    where=EVICTION.where,
    op_index=3,
    op="evict tokens=2",
    op_kind="evict",
    op_count=4,
    call="evict_device_next_node(component_type=FULL)",
    rows=[
        Row(field="node_id", left="3", right="4", differs=True),
        Row(field="tokens", left="[5, 6, 7, 8]", right="[5, 6, 9, 8]", differs=True),
        Row(field="is_exhausted", left="False", right="False"),
    ],
    rule="EVC-12",
    rule_text="Of two leaves of equal hit count the one that was used longer ago goes first.",
    guilty=PAIR[1],
    verdict="the reference model allows node 3 alone",
    config={"policy": "lfu", "capacity": 16},
    ops=[
        OpLine(index=0, text="arrive request=1 tokens=[1 2 3 4 5 6]", touches=[2, 3]),
        OpLine(index=1, text="arrive request=2 tokens=[1 2 3 4 7 8]", touches=[2, 4]),
        OpLine(index=2, text=f"core_match key={HOSTILE_TEXT}", touches=[5]),
        OpLine(index=3, text="evict tokens=2", touches=[3, 4], is_concerned=True),
    ],
    concerned=[3, 4],
    sides=[
        SideView(
            name=PAIR[0],
            calls=["evict_device_next_node(component_type=FULL) -> node_id=3"],
            tree_before=BEFORE,
            tree_after=after(3),
        ),
        SideView(
            name=PAIR[1],
            calls=["evict_device_next_node(component_type=FULL) -> node_id=4"],
            findings=[f"replay: events tell of {HOSTILE_TEXT}"],
            outcome="ok",
            tree_before=BEFORE,
            tree_after=after(4),
        ),
    ],
)
GROUPED = Explanation(
    pair=PAIR,
    signature=GROUPING.signature,
    where=GROUPING.where,
    op_index=2,
    op="drain_events",
    op_kind="drain_events",
    op_count=3,
    call="take_events()",
    rows=[Row(field="grouping", left="1 event", right="2 events", differs=True)],
    rule="EVT-21",
    rule_text="Removals in a row may be told in one event.",
    ops=[OpLine(index=0, text="drain_events", is_concerned=True)],
)


def shrunk(found: Divergence, before: int, now: int, is_minimal: bool = True) -> Shrunk:
    """That a find became smaller."""
    return Shrunk(
        pair=PAIR,
        signature=found.signature,
        replayed=found.signature,
        file=str(found.file).replace(".jsonl", ".min.jsonl"),
        ops_before=before,
        ops_after=now,
        seconds=4.2,
        trials=312,
        is_minimal=is_minimal,
        tried={"remove one op": 4, "shorten tokens": 12},
        slipped={"oracle:evict:conservation": 2},
    )


def samples() -> list[Sample]:
    """The tally every thirty seconds of a run of ten minutes."""
    return [
        Sample(seconds=30.0 * step, tally=tally((step / 20) ** 0.9 if step < 20 else 1.0))
        for step in range(1, 21)
    ]


def events() -> list[Event]:
    """The whole run, in the order in which it was told."""
    told = samples()
    return [
        Started(
            pairs=[PAIR],
            profile="full",
            engine="swarm",
            seed=7,
            jobs=2,
            seconds=600.0,
            versions={"treedrift": "0.1.0", "sglang": "0.5.23", "torch": "2.11.0"},
            command="treedrift fuzz --pair "
            "sglang-python@0.5.23,sglang-rust@0.5.23 --profile full --time 10m",
        ),
        Canary(drill="lost-event", caught=True, ops=120, seconds=0.4),
        Found(GROUPING, is_new=True, seed=7_000_021, job=0, case=1, seconds=3.5),
        *told[:4],
        Found(EVICTION, is_new=True, seed=7_000_040, job=1, case=18, seconds=130.0),
        Checkpoint(job=0, next_case=200, tally=tally(0.1), seconds=131.0),
        Found(EVICTION, is_new=False, seed=7_000_050, job=0, case=29, seconds=140.0),
        *told[4:],
        Found(CRASH, is_new=True, seed=7_000_900, job=0, case=450, seconds=599.0),
        shrunk(EVICTION, 58, 4),
        shrunk(GROUPING, 13, 3, is_minimal=False),
        Judged(pair=PAIR, signature=EVICTION.signature, status="new", rule="EVC-12"),
        Judged(
            pair=PAIR,
            signature=GROUPING.signature,
            status="known",
            known="evt-21-removals-across-namespaces",
            rule="EVT-21",
        ),
        Explained(
            pair=PAIR,
            signature=EVICTION.signature,
            explanation=EXPLANATION,
            trace='{"treedrift":"trace"}\n{"op":"evict","tokens":2}\n',
        ),
        Explained(pair=PAIR, signature=GROUPING.signature, explanation=GROUPED, trace="{}\n"),
        LedgerChecked(
            pair=PAIR,
            known="evt-21-removals-across-namespaces",
            holds=True,
            rule="EVT-21",
            note="the Python core merges removals | the Rust core does not",
        ),
        LedgerChecked(pair=PAIR, known="node-9-rotation-phase", holds=False, rule="NODE-9"),
        Finished(seconds=600.5, interrupted=False, tally=tally()),
    ]
