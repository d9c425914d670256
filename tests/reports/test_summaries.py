"""What a run is told as, word for word."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO

from rich.console import Console

from tests.reports import fixed_stream
from treedrift.harness.behaviours import EXPECTED_BEHAVIOURS
from treedrift.harness.compare import Divergence
from treedrift.harness.events import Canary
from treedrift.harness.lockstep import Pair
from treedrift.harness.tally import Tally
from treedrift.reports.run import Kind, RunView
from treedrift.reports.summary import OP_KINDS, POLICIES, not_reached, summary_of
from treedrift.reports.terminal import print_summary
from treedrift.reports.words import cut_alike

PAIR = ("python", "rust")


def tally() -> Tally:
    return Tally(
        op_count=12_345,
        cases=67,
        refused=1,
        op_kinds={kind: 1 for kind in OP_KINDS if kind != "touch"} | {"evict": 45},
        policies={"lru": 60, "tlru": 6},
        behaviours={
            "match.hit": 1000,
            "evict.leaf": 20,
            "requests": 300,
            "hit_tokens": 250,
            "prompt_tokens": 1000,
        },
        core_seconds={"rust": 0.5, "python": 2.0},
        side_seconds={"rust": 1.25, "python": 3.5},
    )


def divergence() -> Divergence:
    return Divergence(
        pair=PAIR,
        kind="difference",
        op_index=41,
        op_kind="evict",
        where="calls[0].evict_device_next_node.result.node_id",
        left=3,
        right=4,
        file="build/findings/one.jsonl",
    )


def in_the_drain() -> Divergence:
    return Divergence(
        pair=PAIR,
        kind="oracle",
        op_index=None,
        op_kind="drain",
        where="conservation: 3 slots did not come back",
        side="rust",
        signature="oracle:drain:conservation@rust",
    )


def run_of(
    *kinds: Kind,
    pairs: Sequence[Pair] = (PAIR,),
    counted: Tally | None = None,
    interrupted: bool = False,
) -> RunView:
    return RunView(
        pairs=list(pairs),
        tally=counted or tally(),
        seconds=5.0,
        kinds=list(kinds),
        is_interrupted=interrupted,
    )


def printed(run: RunView, is_campaign: bool = True) -> list[str]:
    text = StringIO()
    console = Console(file=text, width=400, soft_wrap=True, emoji=False, markup=False)
    print_summary(console, run, is_campaign)
    return [line.rstrip() for line in text.getvalue().splitlines()]


HEAD = [
    "12,345 ops in 67 cases, 5.0 s (2,469 ops/s)",
    "  python against rust: no divergence",
    "core    in the core  whole side  requests",
    "python  2.00 s       3.50 s      300, hit rate 25.0%",
    "rust    0.50 s       1.25 s      300, hit rate 25.0%",
]


def test_an_agreeing_campaign_is_told_in_full() -> None:
    unreached = [name for name in EXPECTED_BEHAVIOURS if name not in ("match.hit", "evict.leaf")]
    unreached += [f"policy.{name}" for name in POLICIES if name not in ("lru", "tlru")]
    unreached += ["op.touch"]
    every = len(EXPECTED_BEHAVIOURS) + len(POLICIES) + len(OP_KINDS)
    assert printed(run_of()) == [
        *HEAD,
        f"reached: {every - len(unreached)} of {every} ops, policies and behaviours; not reached: "
        f"{', '.join(unreached[:12])} and {len(unreached) - 12} more",
    ]


def test_a_replay_is_not_expected_to_reach_everything() -> None:
    assert printed(run_of(), is_campaign=False) == HEAD


def test_an_interrupted_run_says_so() -> None:
    lines = printed(run_of(interrupted=True))
    assert lines[0] == "12,345 ops in 67 cases, 5.0 s (2,469 ops/s), interrupted"


def test_divergences_are_told_with_what_shows_and_repeats_them() -> None:
    found = [Kind(first=divergence(), count=7), Kind(first=in_the_drain())]
    lines = printed(run_of(*found), is_campaign=False)
    assert lines == [
        HEAD[0],
        "  python against rust: 2 kinds of divergence",
        *HEAD[2:],
        "",
        "found  evict: evict_device_next_node answers another node_id",
        "  seen     7 times, first at op 41 (evict)",
        "  differs  calls[0].evict_device_next_node.result.node_id",
        "             python  3",
        "             rust    4",
        "  kind     difference:evict:calls[].evict_device_next_node.result.node_id",
        "",
        "found  drain: rust breaks an invariant: conservation: 3 slots did not come back",
        "  wrong    rust",
        "  seen     once, first in the final drain",
        "  differs  conservation: 3 slots did not come back",
        "  kind     oracle:drain:conservation@rust",
        "",
        "next",
        "  treedrift show build/findings/one.jsonl    # both sides where they part, explained",
        "  treedrift shrink build/findings/one.jsonl  # make it as small as it gets",
        "  treedrift repro build/findings/one.jsonl   # a pytest that fails by itself",
        "  treedrift replay build/findings/one.jsonl  # run it again",
    ]


def test_a_replay_on_another_pair_names_it_in_the_commands() -> None:
    lines = printed(run_of(Kind(first=divergence(), is_replay=True)), is_campaign=False)
    assert lines[lines.index("next") + 1].startswith(
        "  treedrift show build/findings/one.jsonl --pair python,rust "
    )


def test_kinds_that_differ_only_by_their_op_are_told_as_one() -> None:
    def kind(op: str, ops: int | None, count: int) -> Kind:
        found = divergence()
        found.op_kind, found.file = op, f"{op}.jsonl"
        found.signature = f"difference:{op}:calls[].evict_device_next_node.result.node_id"
        if ops is None:
            return Kind(first=found, count=count)
        return Kind(first=found, count=count, shrunk=fixed_stream.shrunk(found, 50, ops))

    lines = printed(run_of(kind("evict", 9, 2), kind("touch", 3, 4), kind("reset", None, 1)))
    assert "  python against rust: 3 kinds of divergence; the new ones look like 1 fault" in lines
    (title,) = [line for line in lines if line.startswith("found")]
    assert title == "found  touch, evict, reset: evict_device_next_node answers another node_id"
    told = lines[lines.index(title) :]
    assert told[1] == (
        "  seen     7 times, first at op 41 (touch); shrunk from 50 to 3 ops, minimal"
    )
    assert [line for line in told if line.startswith("  also")] == [
        "  also     evict: 2 times, 9 ops, evict.min.jsonl",
        "  also     reset: 1 time, reset.jsonl",
    ]
    assert told[-3].startswith("  treedrift show touch.min.jsonl ")


def test_of_many_groups_five_are_told_in_full_and_the_rest_counted() -> None:
    found = [divergence() for _ in range(30)]
    for number, one in enumerate(found):
        one.where = f"sizes.number_{number}"
        one.signature = f"difference:evict:sizes.number_{number}"
    lines = printed(run_of(*(Kind(first=one) for one in found)))
    assert sum(line.startswith("found") for line in lines) == 25
    assert sum(line.startswith("  seen") for line in lines) == 5
    assert "5 more are in the report" in lines
    # The one that the next step is about is shown there, the others each by themselves.
    assert sum("treedrift show" in line for line in lines) == 5
    assert len(lines) < 80


def test_each_pair_has_a_verdict_of_its_own() -> None:
    pairs = [PAIR, ("python", "other")]
    lines = printed(run_of(Kind(first=divergence()), pairs=pairs))
    assert "  python against rust: 1 kind of divergence" in lines
    assert "  python against other: no divergence" in lines
    assert "  pair     python against rust" in lines


def test_a_run_of_nothing_can_be_told() -> None:
    assert printed(run_of(counted=Tally.empty()), is_campaign=False) == [
        "0 ops in 0 cases, 5.0 s (0 ops/s)",
        "  python against rust: no divergence",
    ]


def test_text_of_a_core_is_not_taken_for_markup() -> None:
    strange = divergence()
    strange.left, strange.right = "[bold]x[/bold]", ":smile:"
    lines = printed(run_of(Kind(first=strange)))
    assert "             python  [bold]x[/bold]" in lines
    assert "             rust    :smile:" in lines


def test_a_long_value_is_cut() -> None:
    long = divergence()
    long.left = list(range(1000))
    lines = printed(run_of(Kind(first=long)))
    (value,) = [line for line in lines if line.startswith("             python")]
    assert 80 < len(value) <= 100


def test_long_values_are_shown_from_where_they_part() -> None:
    alike = "1," * 200
    assert cut_alike(f"{alike}x, y", f"{alike}z", 40) == (
        "... 1,1,1,1,1,x, y",
        "... 1,1,1,1,1,z",
    )
    assert cut_alike("x" + alike, "y" + alike, 8) == ("x1,1,1,1 ...", "y1,1,1,1 ...")
    assert cut_alike("same", "same", 40) == ("same", "same")
    assert cut_alike("1" * 50, "1" * 50, 40) == ("... " + "1" * 10, "... " + "1" * 10)


def test_an_explained_kind_is_told_by_its_shrunk_trace() -> None:
    run = RunView.from_events(fixed_stream.events())
    lines = printed(run)
    start = lines.index("new  evict: evict_device_next_node answers another node_id")
    assert lines[start : lines.index("", start)] == [
        "new  evict: evict_device_next_node answers another node_id",
        "  rule     EVC-12: Of two leaves of equal hit count the one that was used longer ago goes "
        "first.",
        "  wrong    sglang-rust@0.5.23: the reference model allows node 3 alone",
        "  seen     2 times, first at op 57 (evict); shrunk from 58 to 4 ops, minimal",
        "  differs  node_id",
        "             sglang-python@0.5.23  3",
        "             sglang-rust@0.5.23    4",
        "  differs  tokens",
        "             sglang-python@0.5.23  [5, 6, 7, 8]",
        "             sglang-rust@0.5.23    [5, 6, 9, 8]",
        f"  kind     {fixed_stream.EVICTION.signature}",
    ]
    assert [line.split("  #")[0].rstrip() for line in lines[lines.index("next") + 1 :]] == [
        f"  treedrift {name} runs/nightly/findings/eviction-7.min.jsonl"
        for name in ("show", "repro", "replay")
    ]


def test_what_is_new_is_told_last_and_what_is_known_in_a_line() -> None:
    lines = printed(RunView.from_events(fixed_stream.events()))
    assert (
        "  sglang-python@0.5.23 against sglang-rust@0.5.23: 3 kinds of divergence, "
        "1 of them known" in lines
    )
    assert (
        "vanished: the known difference node-9-rotation-phase no longer shows for "
        "sglang-python@0.5.23 against sglang-rust@0.5.23" in lines
    )
    assert "  if it is repaired, keep it so: treedrift corpus verify --promote" in lines
    assert "canary: lost-event was caught after 120 ops" in lines
    (known,) = [line for line in lines if line.startswith("known")]
    assert known == (
        "known  evt-21-removals-across-namespaces: EVT-21, 1 time; "
        "the Python core merges removals | the ..."
    )
    new = next(number for number, line in enumerate(lines) if line.startswith("new"))
    assert lines.index(known) < new


def test_a_missed_canary_is_told_loudly() -> None:
    missed = Canary(drill="leaked-slots", caught=False, ops=9, seconds=1.0)
    lines = printed(RunView.from_events([missed]))
    assert lines[-1] == (
        "canary: leaked-slots was NOT caught in 9 ops; "
        "this run proves nothing, whatever it says above"
    )


# --- The object ---------------------------------------------------------------------------


def test_the_object_holds_all_figures() -> None:
    told = summary_of(run_of(Kind(first=divergence(), count=7)))
    statistics = told.pop("statistics")
    assert told == {
        "ops": 12_345,
        "cases": 67,
        "refused_cases": 1,
        "seconds": 5.0,
        "interrupted": False,
        "verdict": "1 new kind of divergence in 12,345 ops, python against rust.",
        "pairs": [["python", "rust"]],
        "divergences": [
            {
                "kind": "difference",
                "signature": "difference:evict:calls[].evict_device_next_node.result.node_id",
                "group": "difference:*:calls[].evict_device_next_node.result.node_id",
                "headline": "evict: evict_device_next_node answers another node_id",
                "pair": ["python", "rust"],
                "side": None,
                "verdict": None,
                "op": "evict",
                "op_index": 41,
                "where": "calls[0].evict_device_next_node.result.node_id",
                "left": 3,
                "right": 4,
                "rows": [
                    {
                        "field": "calls[0].evict_device_next_node.result.node_id",
                        "left": 3,
                        "right": 4,
                    }
                ],
                "count": 7,
                "file": "build/findings/one.jsonl",
                "status": None,
                "known": None,
                "rule": None,
                "rule_text": None,
                "guilty": None,
                "shrunk": None,
            }
        ],
        "ledger": [],
        "canaries": [],
    }
    assert list(statistics["ops"]) == list(OP_KINDS)
    assert (statistics["ops"]["evict"], statistics["ops"]["touch"]) == (45, 0)
    assert statistics["behaviours"] == {"evict.leaf": 20, "match.hit": 1000}
    assert (statistics["hit_tokens"], statistics["hit_rate"]) == (250, 0.25)


def test_summing_up_leaves_the_tally_as_it_is() -> None:
    counted = tally()
    assert summary_of(run_of(counted=counted)) == summary_of(run_of(counted=counted))


def test_a_run_that_reached_everything_misses_nothing() -> None:
    counted = Tally.empty()
    counted.behaviours = dict.fromkeys(EXPECTED_BEHAVIOURS, 1)
    counted.policies = dict.fromkeys(POLICIES, 1)
    counted.op_kinds = dict.fromkeys(OP_KINDS, 1)
    assert not_reached(counted) == []
