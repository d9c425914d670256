"""The page of a run as text: whole, alone, the same every time, and nothing taken for markup."""

from __future__ import annotations

from html.parser import HTMLParser

import msgspec
import pytest

from tests.reports import fixed_stream
from treedrift.harness.events import Event, Explained, Finished, Found
from treedrift.harness.explanation import Explanation, Row, SideView, TreeNode
from treedrift.reports.html import marked, page
from treedrift.reports.run import RunView
from treedrift.reports.trees import pictures
from treedrift.reports.words import headline

VOID = {"meta", "link", "br", "hr", "wbr", "img", "input"}


class Parsed(HTMLParser):
    """The tags of a page with their attributes, its text, and whether tags are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == [], "tags that are never closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def rendered(events: list[Event] | None = None) -> str:
    return page(RunView.from_events(events or fixed_stream.events()))


@pytest.fixture(scope="module")
def text() -> str:
    return rendered()


@pytest.fixture(scope="module")
def parsed(text: str) -> Parsed:
    return Parsed(text)


def test_the_same_events_give_the_same_bytes(text: str) -> None:
    assert rendered() == text


def test_the_page_loads_nothing(text: str, parsed: Parsed) -> None:
    for tag, attributes in parsed.tags:
        assert tag not in {"script", "iframe", "object", "embed", "img", "base"}
        for name in ("src", "href", "xlink:href", "action", "data"):
            value = attributes.get(name)
            assert value is None or value == "data:," or value.startswith("#"), (tag, value)
        assert not any(name.startswith("on") for name in attributes)
    assert "@import" not in text
    assert text.count("url(") == text.count("url(#")


def test_a_browser_is_told_to_load_nothing(parsed: Parsed) -> None:
    policies = [
        attributes["content"]
        for tag, attributes in parsed.tags
        if attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]


def test_text_of_a_core_is_never_markup(text: str, parsed: Parsed) -> None:
    assert "<script" not in text
    shown = "".join(parsed.text)
    assert shown.count(fixed_stream.HOSTILE_TEXT) >= 8


def test_ids_are_there_once_and_links_lead_to_them(parsed: Parsed) -> None:
    ids = [attributes["id"] for _, attributes in parsed.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in parsed.tags:
        for name in ("href", "xlink:href", "aria-labelledby"):
            target = attributes.get(name)
            if target is not None and target != "data:,":
                assert target.removeprefix("#") in ids


def test_headings_come_in_order(parsed: Parsed) -> None:
    levels = [int(tag[1]) for tag, _ in parsed.tags if tag in {"h1", "h2", "h3", "h4", "h5"}]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(later <= earlier + 1 for earlier, later in zip(levels, levels[1:], strict=False))


def test_every_header_cell_says_what_it_heads(parsed: Parsed) -> None:
    scopes = [attributes.get("scope") for tag, attributes in parsed.tags if tag == "th"]
    assert scopes
    assert set(scopes) == {"row", "col"}


def test_pictures_speak(parsed: Parsed) -> None:
    drawings = [attributes for tag, attributes in parsed.tags if tag == "svg"]
    trees = [one["aria-label"] for one in drawings if one.get("role") == "img"]
    assert [label.split(":")[0] for label in trees if label] == [
        "Before, on both sides",
        "After, on sglang-python@0.5.23",
        "After, on sglang-rust@0.5.23",
    ]
    # What a plot shows is said by the figure's caption.
    assert all(one.get("aria-hidden") == "true" for one in drawings if one.get("role") != "img")


def test_the_page_says_what_matters(parsed: Parsed) -> None:
    shown = " ".join("".join(parsed.text).split())
    for fact in (
        "2 new kinds of divergence and 1 known in 200,000 ops. Vanished: 1 known difference.",
        "treedrift fuzz --pair sglang-python@0.5.23,sglang-rust@0.5.23 --profile full --time 10m",
        "EVC-12 Of two leaves of equal hit count",
        "sglang-rust@0.5.23: the reference model allows node 3 alone",
        "from 58 to 4 ops in 4.2 s, 312 trials; minimal: no single removal keeps it",
        "treedrift show runs/nightly/findings/eviction-7.min.jsonl",
        "treedrift shrink runs/nightly/findings/crash-8.jsonl",
        "Known: the Python core merges removals | the Rust core does not",
        "the sides stay in the same state, so the case went on",
        "time ran out before everything was tried",
        "event.AllBlocksCleared not reached",
        "NODE-9 vanished",
        "oracle:evict:conservation 2 times",
    ):
        assert fact in shown, fact


def test_a_killed_run_has_a_page() -> None:
    events = [event for event in fixed_stream.events() if isinstance(event, Found)]
    shown = "".join(Parsed(rendered(events)).text)
    assert "The run was cut off" in shown
    assert "BlockRemoved" in shown


def test_a_run_of_nothing_has_a_page() -> None:
    empty = [Finished(seconds=0.0, interrupted=True, tally=fixed_stream.tally(0.0))]
    assert "No divergence in 0 ops. The run was interrupted" in "".join(
        Parsed(rendered([*empty])).text
    )


def test_ops_that_an_explanation_leaves_out_are_counted() -> None:
    events = fixed_stream.events()
    lines = fixed_stream.EXPLANATION.ops
    shorter = msgspec.structs.replace(fixed_stream.EXPLANATION, ops=[lines[0], lines[3]])
    for event in events:
        if isinstance(event, Explained) and event.explanation == fixed_stream.EXPLANATION:
            event.explanation = shorter
    assert "2 ops that do not touch the nodes concerned" in "".join(Parsed(rendered(events)).text)


def test_a_divergence_of_the_final_drain_is_below_the_last_op() -> None:
    events = fixed_stream.events()
    for event in events:
        if isinstance(event, Explained):
            event.explanation = msgspec.structs.replace(
                event.explanation, op_index=None, op="finish of request 1", op_kind="drain"
            )
    shown = " ".join("".join(Parsed(rendered(events)).text).split())
    assert "3 evict tokens=2 #3 #4 finish of request 1 they part here" in shown


def with_another_op() -> list[Event]:
    """The run, in which the eviction was found by a touch too; that kind has the smaller trace."""
    other = msgspec.structs.replace(
        fixed_stream.EVICTION, op_kind="touch", signature="", file="touch-8.jsonl"
    )
    events = fixed_stream.events()
    found = Found(other, is_new=True, seconds=150.0)
    return [*events[:-1], found, fixed_stream.shrunk(other, 30, 2), events[-1]]


def test_kinds_with_one_call_and_field_are_one_finding_with_the_others_folded() -> None:
    text = rendered(with_another_op())
    assert text.count('<article id="finding-') == 3
    shown = " ".join("".join(Parsed(text).text).split())
    assert "new evict, touch: evict_device_next_node answers another node_id" in shown
    assert "by other ops touch 1 time, 2 ops, touch-8.min.jsonl" in shown
    folded = text.split('<details class="other">')[1]
    assert "treedrift show touch-8.min.jsonl" in folded


def test_a_page_with_nothing_new_shows_what_is_known() -> None:
    known = '<article id="finding-3" class="finding known">\n<details>'
    assert known in rendered()
    events = [
        event
        for event in fixed_stream.events()
        if not (isinstance(event, Found) and event.divergence is not fixed_stream.GROUPING)
    ]
    assert '<article id="finding-1" class="finding known">\n<details open>' in rendered(events)


def test_a_page_says_how_somebody_else_repeats_it(parsed: Parsed) -> None:
    shown = " ".join("".join(parsed.text).split())
    assert "sglang-rust@0.5.23: SGLang's Rust tree core, as it is in release 0.5.23" in shown
    assert "make setup" in shown
    assert shown.count("treedrift env add sglang==0.5.23") == 1


def test_fields_that_differ_come_first_and_many_that_do_not_are_folded() -> None:
    same = [Row(field=f"field_{number}", left="1", right="1") for number in range(9)]
    events = fixed_stream.events()
    for event in events:
        if isinstance(event, Explained) and event.explanation.rule == "EVC-12":
            rows = [*same, *event.explanation.rows]
            event.explanation = msgspec.structs.replace(event.explanation, rows=rows)
    shown = " ".join("".join(Parsed(rendered(events)).text).split())
    assert "node_id34 tokens[5, 6, 7, 8][5, 6, 9, 8] 10 fields that are the same" in shown


# --- Parts --------------------------------------------------------------------------------


def test_only_the_words_that_differ_are_marked() -> None:
    left, right = marked("slots [4, 5] <b>", "slots [4, 6] <b>")
    assert left == "slots [4, <mark>5</mark>] &lt;b&gt;"
    assert right == "slots [4, <mark>6</mark>] &lt;b&gt;"


def words_of(explanation: Explanation) -> dict[str, list[str]]:
    """What is written on the right of each tree's boxes."""
    return {
        picture.title: [part.split("</text>")[0] for part in picture.svg.split('class="mark">')[1:]]
        for picture in pictures(explanation)
    }


def test_trees_mark_what_goes_and_what_only_one_side_has() -> None:
    assert words_of(fixed_stream.EXPLANATION) == {
        "Before, on both sides": ["goes on sglang-python@0.5.23", "goes on sglang-rust@0.5.23"],
        "After, on sglang-python@0.5.23": ["only here"],
        "After, on sglang-rust@0.5.23": ["only here"],
    }


BEFORE: dict[str, list[str]] = {"Before, on both sides": []}


def node(handle: int, hits: int) -> TreeNode:
    return TreeNode(handle=handle, parent=0, depth=1, label="1 2", facts=[f"hits {hits}"])


@pytest.mark.parametrize(
    ("left", "right", "words"),
    [
        ([node(1, 2)], [node(1, 2)], BEFORE | {"After, on both sides": ["changed"]}),
        ([node(1, 1)], [node(1, 1)], {"Before and after, on both sides": []}),
        (
            [node(1, 1), node(2, 0)],
            [node(1, 1), node(2, 0)],
            BEFORE | {"After, on both sides": ["new"]},
        ),
        (
            [node(1, 2)],
            [node(1, 3)],
            BEFORE | {"After, on a": ["differs"], "After, on b": ["differs"]},
        ),
    ],
)
def test_trees_say_what_became_of_a_node(
    left: list[TreeNode], right: list[TreeNode], words: dict[str, list[str]]
) -> None:
    before = [fixed_stream.ROOT, node(1, 1)]
    sides = [
        SideView(name=name, tree_before=before, tree_after=[fixed_stream.ROOT, *after])
        for name, after in (("a", left), ("b", right))
    ]
    explanation = msgspec.structs.replace(fixed_stream.EXPLANATION, sides=sides)
    assert words_of(explanation) == words


def test_a_side_whose_tree_was_not_seen_has_no_picture() -> None:
    sides = [SideView(name="a", tree_after=[fixed_stream.ROOT]), SideView(name="b")]
    explanation = msgspec.structs.replace(fixed_stream.EXPLANATION, sides=sides)
    assert words_of(explanation) == {"After, on a": []}


@pytest.mark.parametrize(
    ("kind", "where", "said"),
    [
        ("oracle", "conservation: 3", "drain: both sides break an invariant: conservation: 3"),
        (
            "refused",
            "None|E",
            f"{fixed_stream.PAIR[1]} refuses the configuration with E, the other",
        ),
        ("refused", "E|F", f"with E, {fixed_stream.PAIR[1]} refuses the configuration with F"),
    ],
)
def test_what_both_sides_do_is_told_of_both(kind: str, where: str, said: str) -> None:
    found = msgspec.structs.replace(fixed_stream.CRASH, kind=kind, where=where, side=None)
    assert said in headline(found)


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("calls[0].match_prefix.result.device_prefix_len", "answers another device_prefix_len"),
        ("calls[2].begin_insert.result.actions[1].type", "answers actions[] of another type"),
        ("calls[2].begin_insert.result.actions.length", "answers more or fewer actions"),
        ("calls[0].dec_lock_ref.ok|InvalidHandleError", "an answer on one side, InvalidHandle"),
        ("calls[1].take_events.grouping", "tells the same events, grouped differently"),
        ("calls[1].evict.params.num_tokens", "is called with another params.num_tokens"),
        ("calls[1].method", "the sides call different methods"),
        ("calls.begin_insert", "one side calls begin_insert once more"),
        (
            "calls[0].swa_tombstone_ranges(swa).result.length",
            "swa_tombstone_ranges for the window answers more or fewer items",
        ),
        ("sizes.evictable", "the evictable size differs afterwards"),
        ("sizes.mamba_free", "the number of free slots of the states differs afterwards"),
        ("tree.node.is_backuped", "the trees differ afterwards: node.is_backuped"),
        ("outcome", "the op ends in another way"),
        ("snapshot.nodes[3].hit_count", "the cores differ inside afterwards: nodes[].hit_count"),
    ],
)
def test_a_difference_is_told_in_words(where: str, said: str) -> None:
    assert said in headline(msgspec.structs.replace(fixed_stream.EVICTION, where=where))
