"""An explanation as text: complete, within 100 columns, and the same without colour."""

from __future__ import annotations

import io
import re
from textwrap import dedent
from typing import Any

import pytest
from rich.console import Console

from treedrift.harness.explanation import Explanation, OpLine, Row, SideView, TreeNode
from treedrift.reports.commands import next_commands
from treedrift.reports.explained import TREE_NODES_MAX, print_explanation, text_explanation
from treedrift.reports.marks import trees_after, trees_before

PAIR = ("python", "rust")

ROOT = TreeNode(handle=0, parent=None, depth=0, label="root")


def node(handle: int, label: str, **fields: Any) -> TreeNode:
    depth = fields.pop("depth", 1)
    parent = fields.pop("parent", 0)
    return TreeNode(handle=handle, parent=parent, depth=depth, label=label, **fields)


BEFORE = [ROOT, node(1, "[1, 2, 3]", slots="[1, 2, 3]", facts=["leaf"], is_concerned=True)]
AFTER = [ROOT, node(2, "[1]", slots="[1]", is_concerned=True)]
LOWER = node(1, "[2, 3]", slots="[2, 3]", facts=["leaf"], parent=2, depth=2)


def explanation(**fields: Any) -> Explanation:
    """A match that splits a node; one side forgets the lower part."""
    told: dict[str, Any] = {
        "pair": PAIR,
        "signature": "difference:touch:calls[].match_prefix.result.device_prefix_len",
        "where": "calls[0].match_prefix.result.device_prefix_len",
        "op_index": 1,
        "op_kind": "touch",
        "op": "touch(tokens=[1])",
        "call": "match_prefix(params=MatchPrefixParams(key=[1]))",
        "rows": [
            Row(field="result.device_prefix_len", left="1", right="0", differs=True),
            Row(field="result.last_device_node", left="2", right="2"),
        ],
        "rule": "MATCH-9",
        "rule_text": "The matched length is that of the device slots down to the last device node.",
        "guilty": "rust",
        "verdict": "reference_model: device_prefix_len of a match is 0, must be 1",
        "config": {"page_size": 1, "policy": "lfu"},
        "note": "a split that loses its lower part",
        "op_count": 2,
        "ops": [
            OpLine(index=0, text="core_insert(tokens=[1, 2, 3])", touches=[1], is_concerned=True),
            OpLine(index=1, text="touch(tokens=[1])", touches=[2]),
        ],
        "concerned": [1, 2],
        "sides": [
            SideView(
                name="python",
                calls=[
                    "is_root(node_id=2) -> False",
                    "match_prefix(params=MatchPrefixParams(key=[1]))",
                ],
                tree_before=BEFORE,
                tree_after=[*AFTER, LOWER],
            ),
            SideView(
                name="rust",
                calls=[
                    "is_root(node_id=2) -> False",
                    "match_prefix(params=MatchPrefixParams(key=[1]))",
                ],
                findings=["conservation: pages that nobody owns: [2, 3]"],
                tree_before=BEFORE,
                tree_after=AFTER,
            ),
        ],
    }
    return Explanation(**told | fields)


WHOLE = """\
    python against rust: they part at op 1, touch
    touch: match_prefix answers another device_prefix_len
    rule    MATCH-9: The matched length is that of the device slots down to the last device node.
    wrong   rust: reference_model: device_prefix_len of a match is 0, must be 1
    config  page_size=1, policy=lfu
    note    a split that loses its lower part
    kind    difference:touch:calls[].match_prefix.result.device_prefix_len

    The trace, 2 ops (* touches #1, #2)
     * 0 core_insert(tokens=[1, 2, 3]) #1
    >  1 touch(tokens=[1])             #2

    Where they part
    match_prefix(params=MatchPrefixParams(key=[1]))
       field                     python                              rust
    !  result.device_prefix_len  1                                   0
       result.last_device_node   2                                   2

    Calls before, on both sides
      is_root(node_id=2) -> False

    On rust
      ! conservation: pages that nobody owns: [2, 3]

    The tree before
    on both sides
      root
    *   #1 [1, 2, 3]  (goes on rust)
        slots [1, 2, 3]  leaf

    The tree after
    on python                                         on rust
      root                                              root
    *   #2 [1]  (new)                                 *   #2 [1]  (new)
        slots [1]                                         slots [1]
          #1 [2, 3]  (only here)
          slots [2, 3]  leaf

    Next
      treedrift repro found.jsonl --pair python,rust   # a pytest that fails by itself
      treedrift replay found.jsonl --pair python,rust  # run it again
"""


def printed(told: Explanation, **console: Any) -> str:
    sink = io.StringIO()
    print_explanation(Console(file=sink, **console), told)
    return sink.getvalue()


def bare(text: str) -> str:
    """A text without colours and without the blanks that fill lines."""
    lines = re.sub(r"\x1b\[[\d;]*m", "", text).splitlines()
    return "".join(f"{line.rstrip()}\n" for line in lines)


def test_the_whole_text_reads_from_top_to_bottom() -> None:
    commands = next_commands("found.jsonl", PAIR, is_minimal=True)[1:]
    assert text_explanation(explanation(), commands) == dedent(WHOLE)


def test_a_terminal_shows_the_same_words_in_colour() -> None:
    coloured = printed(explanation(), width=120, force_terminal=True, color_system="truecolor")
    assert "\x1b[" in coloured
    assert bare(coloured) == text_explanation(explanation())


def test_a_pipe_gets_the_plain_text() -> None:
    assert printed(explanation(), width=80) == text_explanation(explanation())


@pytest.mark.parametrize("width", [60, 100])
def test_long_values_stay_within_the_width(width: int) -> None:
    long = "[" + ", ".join(map(str, range(1000, 1080))) + "]"
    told = explanation(
        call=f"match_prefix(params={long})",
        rows=[
            Row(field="result." + "deep." * 20 + "field", left=long, right="x" * 300, differs=True)
        ],
        verdict=long,
        ops=[OpLine(index=0, text=f"core_insert(tokens={long})", touches=list(range(40)))],
        sides=[
            SideView(name=name, calls=[long], tree_after=[ROOT, node(1, long, slots=long)])
            for name in PAIR
        ],
    )
    text = printed(told, width=width, force_terminal=True, color_system=None)
    assert max(map(len, bare(text).splitlines())) <= width
    assert text.count("1079") >= 5


def test_text_that_looks_like_markup_stays_as_it_is() -> None:
    told = explanation(note="[bold]loud[/bold]", config={"policy": "[red]"})
    text = printed(told, width=100, force_terminal=True, color_system=None)
    assert "[bold]loud[/bold]" in text
    assert "policy=[red]" in text


def test_a_command_is_one_line_however_long() -> None:
    commands = next_commands("folder/" * 30 + "x.jsonl", PAIR)
    lines = text_explanation(explanation(), commands).splitlines()
    told = [line.split("  #")[0].strip() for line in lines[-len(commands) :]]
    assert told == [one.line for one in commands]


def test_a_note_that_a_run_wrote_by_itself_is_not_told() -> None:
    told = explanation()
    told.note = "difference at evict: calls[3].x"
    assert "note" not in text_explanation(told)
    told.note = "a leak of issue 7"
    assert "note    a leak of issue 7" in text_explanation(told)


def test_what_is_not_known_is_left_out() -> None:
    told = explanation(
        rule=None, guilty=None, verdict=None, config={}, note="", ops=[], call=None, sides=[]
    )
    text = text_explanation(told)
    assert "wrong  not told" in text
    for word in ("rule ", "config", "note", "The trace", "The tree", "On "):
        assert not re.search(rf"^{word}", text, re.MULTILINE), word


def test_a_rule_without_a_sentence_is_named_alone() -> None:
    text = text_explanation(explanation(rule="MAM-S2", rule_text=None))
    assert re.search(r"^rule +MAM-S2$", text, re.MULTILINE)


def test_calls_stand_before_the_one_that_parts_or_alone() -> None:
    assert "\nCalls before, on both sides\n  is_root(" in text_explanation(explanation())
    assert "\nCalls, on both sides\n  is_root(" in text_explanation(explanation(call=None))


def test_a_drain_and_a_refusal_say_where_they_are() -> None:
    step = "the final drain, step 4 of 5: everything is evicted"
    drain = text_explanation(explanation(op_index=None, op_kind="drain", op=step))
    assert drain.startswith(f"python against rust: they part in {step}\n")
    refused = explanation(op_index=None, op_kind="open", op="the core is built", kind="refused")
    assert "they part when the core is built" in text_explanation(refused)


def test_gaps_in_a_long_trace_are_told() -> None:
    ops = [OpLine(index=index, text="reset()") for index in (3, 4, 90)]
    text = text_explanation(explanation(ops=ops, op_count=91))
    assert "... 3 ops left out" in text
    assert "... 85 ops left out" in text


def test_of_a_large_tree_the_concerned_and_changed_nodes_are_shown() -> None:
    many = [ROOT, *[node(index, f"[{index}]") for index in range(1, TREE_NODES_MAX + 20)]]
    fewer = [one for one in many if one.handle != 7]
    sides = [SideView(name=name, tree_before=many, tree_after=fewer) for name in PAIR]
    text = text_explanation(explanation(sides=sides))
    assert "#7 [7]  (goes)" in text
    assert "#8" not in text
    assert f"{TREE_NODES_MAX + 18} nodes left out" in text


def test_a_tree_that_nothing_touched_is_shown_once() -> None:
    sides = [SideView(name=name, tree_before=BEFORE, tree_after=BEFORE) for name in PAIR]
    text = text_explanation(explanation(sides=sides))
    assert "The tree, before and after\non both sides\n  root" in text
    assert text.count("#1 [1, 2, 3]") == 1


# --- Marks --------------------------------------------------------------------------------


def marks(trees: Any) -> list[tuple[str, list[str]]]:
    return [(tree.title, [one.mark for one in tree.nodes]) for tree in trees]


def test_a_mark_says_first_how_the_sides_differ_and_then_what_changed() -> None:
    changed = node(1, "[1, 2, 3]", slots="[1, 2, 3]", facts=["locked 1"])
    other = node(1, "[1, 2, 3]", slots="[1, 2, 3]", facts=["locked 2"])
    sides = [
        SideView(name="python", tree_before=BEFORE, tree_after=[ROOT, changed]),
        SideView(name="rust", tree_before=BEFORE, tree_after=[ROOT, other, node(5, "[9]")]),
    ]
    assert marks(trees_before(sides)) == [("on both sides", ["", ""])]
    assert marks(trees_after(sides)) == [
        ("on python", ["", "differs"]),
        ("on rust", ["", "differs", "only here"]),
    ]


def test_where_both_sides_agree_marks_compare_with_before() -> None:
    changed = node(1, "[2, 3]", slots="[2, 3]", parent=2, depth=2)
    tree = [ROOT, *AFTER[1:], changed]
    sides = [SideView(name=name, tree_before=BEFORE, tree_after=tree) for name in PAIR]
    assert marks(trees_after(sides)) == [("on both sides", ["", "new", "changed"])]


def test_a_side_that_shows_no_tree_leaves_the_other_alone() -> None:
    sides = [
        SideView(name="python", tree_before=BEFORE, tree_after=AFTER),
        SideView(name="rust", tree_before=BEFORE),
    ]
    assert marks(trees_before(sides)) == [("on both sides", ["", "goes"])]
    assert marks(trees_after(sides)) == [("on python", ["", "new"])]
