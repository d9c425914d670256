"""What a run is told as, word for word."""

from __future__ import annotations

from io import StringIO
from typing import Any

from rich.console import Console

from tests.reports import fixed_stream
from treedrift.harness.behaviours import EXPECTED_BEHAVIOURS
from treedrift.harness.campaign import Budget
from treedrift.harness.compare import Divergence
from treedrift.harness.events import Canary, Found, Progress
from treedrift.harness.tally import Tally
from treedrift.reports.run import RunView
from treedrift.reports.summary import OP_KINDS, POLICIES, not_reached, summarize, summary_of
from treedrift.reports.terminal import ProgressView, found_line, print_summary
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


def printed(summary: dict[str, Any], is_campaign: bool = True) -> list[str]:
    text = StringIO()
    console = Console(file=text, width=400, soft_wrap=True, emoji=False, markup=False)
    print_summary(console, summary, is_campaign)
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
    assert printed(summarize([PAIR], tally(), 5.0, [], [])) == [
        *HEAD,
        "reached: evict.leaf 20, match.hit 1,000",
        "policies: lru 60, lfu 0, fifo 0, mru 0, filo 0, priority 0, slru 0, tlru 6",
        f"not reached: {', '.join(unreached)}",
    ]


def test_a_replay_is_not_expected_to_reach_everything() -> None:
    assert printed(summarize([PAIR], tally(), 5.0, [], []), is_campaign=False) == HEAD


def test_an_interrupted_run_says_so() -> None:
    lines = printed(summarize([PAIR], tally(), 5.0, [], [], interrupted=True))
    assert lines[0] == "12,345 ops in 67 cases, 5.0 s (2,469 ops/s), interrupted"


def test_divergences_are_told_with_what_repeats_and_shows_them() -> None:
    found = [divergence(), in_the_drain()]
    lines = printed(summarize([PAIR], tally(), 5.0, found, [7, 1]), is_campaign=False)
    assert lines == [
        HEAD[0],
        "  python against rust: 2 kinds of divergence",
        *HEAD[2:],
        "",
        "difference:evict:calls[].evict_device_next_node.result.node_id",
        "  evict: evict_device_next_node answers another node_id",
        "  7 times; first at op 41 (evict)",
        "  calls[0].evict_device_next_node.result.node_id",
        "    python: 3",
        "    rust: 4",
        "  treedrift show build/findings/one.jsonl --pair python,rust"
        "  # both sides where they part, explained",
        "  treedrift replay build/findings/one.jsonl --pair python,rust  # run it again",
        "  treedrift shrink build/findings/one.jsonl --pair python,rust"
        "  # make it as small as it gets",
        "  treedrift repro build/findings/one.jsonl --pair python,rust"
        "  # a pytest that fails by itself",
        "",
        "oracle:drain:conservation@rust",
        "  drain: rust breaks an invariant: conservation: 3 slots did not come back",
        "  once; first at the final drain (drain)",
        "  conservation: 3 slots did not come back",
    ]


def test_each_pair_has_a_verdict_of_its_own() -> None:
    pairs = [PAIR, ("python", "other")]
    lines = printed(summarize(pairs, tally(), 5.0, [divergence()], [1]))
    assert "  python against rust: 1 kind of divergence" in lines
    assert "  python against other: no divergence" in lines


def test_a_run_of_nothing_can_be_told() -> None:
    assert printed(summarize([PAIR], Tally.empty(), 0.0, [], []), is_campaign=False) == [
        "0 ops in 0 cases, 0.0 s (0 ops/s)",
        "  python against rust: no divergence",
    ]


def test_text_of_a_core_is_not_taken_for_markup() -> None:
    strange = divergence()
    strange.left, strange.right = "[bold]x[/bold]", ":smile:"
    lines = printed(summarize([PAIR], tally(), 5.0, [strange], [1]))
    assert "    python: [bold]x[/bold]" in lines
    assert "    rust: :smile:" in lines


def test_a_long_value_is_cut() -> None:
    long = divergence()
    long.left = list(range(1000))
    lines = printed(summarize([PAIR], tally(), 5.0, [long], [1]))
    assert max(len(line) for line in lines if line.startswith("    python: ")) < 200


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
    lines = printed(summary_of(run))
    start = lines.index(f"new  {fixed_stream.EVICTION.signature}")
    assert lines[start : lines.index("", start)] == [
        f"new  {fixed_stream.EVICTION.signature}",
        "  evict: evict_device_next_node answers another node_id",
        "  rule EVC-12: Of two leaves of equal hit count the one that was used longer ago "
        "goes first.",
        "  2 times; first at op 57 (evict); shrunk from 58 to 4 ops, minimal",
        "  node_id",
        "    sglang-python@0.5.23: 3",
        "    sglang-rust@0.5.23: 4",
        "  tokens",
        "    sglang-python@0.5.23: [5, 6, 7, 8]",
        "    sglang-rust@0.5.23: [5, 6, 9, 8]",
        *[
            f"  treedrift {name} runs/nightly/findings/eviction-7.min.jsonl "
            f"--pair sglang-python@0.5.23,sglang-rust@0.5.23  # {purpose}"
            for name, purpose in (
                ("show", "both sides where they part, explained"),
                ("replay", "run it again"),
                ("repro", "a pytest that fails by itself"),
            )
        ],
    ]


def test_what_is_new_is_told_last_and_what_is_known_in_short() -> None:
    lines = printed(summary_of(RunView.from_events(fixed_stream.events())))
    assert (
        "  sglang-python@0.5.23 against sglang-rust@0.5.23: 3 kinds of divergence, "
        "1 of them known" in lines
    )
    assert (
        "vanished: the known difference node-9-rotation-phase no longer shows for "
        "sglang-python@0.5.23 against sglang-rust@0.5.23" in lines
    )
    assert "canary: lost-event was caught after 120 ops" in lines
    known = lines.index(f"known  {fixed_stream.GROUPING.signature}")
    assert known < lines.index(f"new  {fixed_stream.EVICTION.signature}")
    told = lines[known : lines.index("", known)]
    assert [line.split()[1] for line in told if line.startswith("  treedrift")] == ["show"]
    assert "  known as evt-21-removals-across-namespaces" in told


def test_a_missed_canary_is_told_loudly() -> None:
    missed = Canary(drill="leaked-slots", caught=False, ops=9, seconds=1.0)
    lines = printed(summary_of(RunView.from_events([missed])))
    assert lines[-1] == (
        "canary: leaked-slots was NOT caught in 9 ops; "
        "this run proves nothing, whatever it says above"
    )


# --- The object ---------------------------------------------------------------------------


def test_the_object_holds_all_figures() -> None:
    told = summarize([PAIR], tally(), 5.0004, [divergence()], [7])
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
    assert summarize([PAIR], counted, 5.0, [], []) == summarize([PAIR], counted, 5.0, [], [])


def test_a_run_that_reached_everything_misses_nothing() -> None:
    counted = Tally.empty()
    counted.behaviours = dict.fromkeys(EXPECTED_BEHAVIOURS, 1)
    counted.policies = dict.fromkeys(POLICIES, 1)
    counted.op_kinds = dict.fromkeys(OP_KINDS, 1)
    assert not_reached(counted) == []


# --- Progress -----------------------------------------------------------------------------


def test_a_new_kind_gets_a_line_and_a_known_one_none() -> None:
    text = StringIO()
    view = ProgressView(Console(file=text, width=200, soft_wrap=True), Budget(ops=10))
    with view.live():
        view(Found(divergence(), is_new=True))
        view(Found(divergence(), is_new=False))
        view(Progress(5, 1, 1.0, 1))
    told = [line for line in text.getvalue().splitlines() if line.startswith("found")]
    assert told == [found_line(divergence()).plain]


def test_the_line_of_a_find_says_pair_op_and_what_differs() -> None:
    assert found_line(divergence()).plain == (
        "found python against rust: evict: evict_device_next_node answers another node_id"
    )


def test_progress_is_told_in_lines_where_none_can_be_redrawn() -> None:
    text = StringIO()
    view = ProgressView(Console(file=text, width=200), Budget(seconds=30.0))
    with view.live():
        for seconds in (1.0, 10.0, 12.0, 21.0):
            view(Progress(op_count=int(seconds) * 1000, cases=1, seconds=seconds, findings=0))
    told = [line for line in text.getvalue().splitlines() if " s  " in line]
    assert told == [
        "10 s  10,000 ops  1,000/s  0 findings",
        "21 s  21,000 ops  1,000/s  0 findings",
    ]
