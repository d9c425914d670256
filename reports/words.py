"""Divergences and verdicts in words: the sentences that every report shares.

Hides how a place such as `calls[0].match_prefix.result.device_prefix_len` is spelled.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..harness.compare import Divergence

SIZES = {
    "evictable": "the evictable size",
    "protected": "the protected size",
    "has_ongoing_insert": "whether an insert is going on",
    "free": "the number of free slots",
    "requests": "the number of requests",
    **{
        f"{component}_{size}": f"{text} of {name}"
        for component, name in (
            ("swa", "the window"),
            ("aux_swa", "the second window"),
            ("mamba", "the states"),
        )
        for size, text in (
            ("evictable", "the evictable size"),
            ("protected", "the protected size"),
            ("free", "the number of free slots"),
        )
    },
}

COMPONENTS = {"swa": "the window", "auxiliary_swa": "the second window", "mamba": "the states"}
"""Components as places name them, in words."""


def plural(count: int, noun: str) -> str:
    """A number with its noun, as in `1 kind` and `2,000 kinds`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def duration(seconds: float) -> str:
    """Seconds as people say them: `0.42 s`, `54.6 s`, `10 min 3 s`, `2 h 5 min`."""
    if seconds < 1:
        return f"{seconds:.2f} s"
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def versus(pair: tuple[str, str]) -> str:
    """A pair as text."""
    return " against ".join(pair)


CORES = {
    "python": "treedrift's own Python core",
    "rust": "treedrift's own Rust core",
    "drill": "treedrift's Python core with one fault put into it",
    "sglang-python": "SGLang's Python tree core",
    "sglang-rust": "SGLang's Rust tree core",
}
"""What stands behind a core's name."""


def described(name: str) -> str:
    """A core in words, for those who don't know the names: with its release, if it has one."""
    core, _, release = name.partition("@")
    said = CORES.get(core.partition(":")[0], "a core of another package")
    return f"{said}, as it is in release {release}" if release else said


def place_of(divergence: Divergence) -> str:
    """Where in its trace a divergence is."""
    if divergence.op_index is None:
        return "in the final drain"
    return f"at op {divergence.op_index} ({divergence.op_kind})"


def listed(names: Sequence[str], most: int) -> str:
    """Names in a row, of many the first ones: `a, b and 3 more`."""
    shown = ", ".join(names[:most])
    return shown + (f" and {len(names) - most:,} more" if len(names) > most else "")


def cut(text: str, width: int) -> str:
    """A text of at most so many characters."""
    return text if len(text) <= width else f"{text[: width - 4]} ..."


def headline(divergence: Divergence, ops: str | None = None) -> str:
    """What went wrong, in one line without values; `ops` names all ops that show it."""
    op = ops or divergence.op_kind
    if divergence.kind == "difference":
        return f"{op}: {_difference(divergence.where)}"
    side = divergence.side or "one side"
    if divergence.kind == "oracle":
        who = f"{divergence.side} breaks" if divergence.side else "both sides break"
        return f"{op}: {who} an invariant: {divergence.where}"
    if divergence.kind == "refused":
        return _refused(divergence)
    ends = {"crash": "dies", "hang": "hangs", "memory": "runs out of memory"}
    return f"{op}: {side} {ends.get(divergence.kind, divergence.kind)}: {divergence.where}"


def _refused(divergence: Divergence) -> str:
    """Who refuses a configuration, and how; `None` stands for a side that accepts it."""
    ends = divergence.where.split("|")
    refusing = [
        f"{name} refuses the configuration with {end}"
        for name, end in zip(divergence.pair, ends, strict=False)
        if end != "None"
    ]
    return ", ".join(refusing) + (", the other side accepts it" if len(refusing) == 1 else "")


def _difference(where: str) -> str:
    call = re.fullmatch(r"calls\[\d+\]\.(\w+)(?:\((\w+)\))?(?:\.(.*))?", where)
    if call is not None:
        about = f" for {COMPONENTS.get(call[2], call[2])}" if call[2] else ""
        return _in_call(f"{call[1]}{about}", call[3] or "")
    extra = re.fullmatch(r"calls\.(\w+)", where)
    if extra is not None:
        return f"one side calls {extra[1]} once more"
    area, _, rest = where.partition(".")
    if area == "sizes":
        return f"{SIZES.get(rest, rest)} differs afterwards"
    if area == "tree":
        return f"the trees differ afterwards: {rest or 'one is missing'}"
    names = {
        "outcome": "the op ends in another way",
        "pool": "the pools differ afterwards",
        "snapshot": "the cores differ inside afterwards",
    }
    return names.get(area, f"{area} differs") + (f": {without_numbers(rest)}" if rest else "")


def _in_call(method: str, rest: str) -> str:
    part, _, path = rest.partition(".")
    if method == "method":
        return "the sides call different methods"
    if not part:
        return f"{method} answers differently"
    if "|" in part:
        ends = ["an answer" if end == "ok" else end for end in part.split("|")]
        return f"{method} gives {ends[0]} on one side, {ends[1]} on the other"
    if part.startswith("result"):
        name = path or part.removeprefix("result")
        return f"{method} answers {_another(name)}" if name else f"{method} answers otherwise"
    if part == "error":
        return f"{method} raises the same error about another {path or 'thing'}"
    if part.startswith("filled"):
        return f"{method} fills its buffer differently"
    if part == "grouping":
        return f"{method} tells the same events, grouped differently"
    return f"{method} is called with {_another(f'{part}.{path}' if path else part)}"


def _another(path: str) -> str:
    """What differs at the end of a field path: `actions.length` is `more or fewer actions`."""
    path = without_numbers(path)
    field, _, last = path.rpartition(".")
    if last == "length":
        return f"more or fewer {field or 'items'}"
    if last == "type":
        return f"{field or 'a value'} of another type"
    return f"another {path}"


def without_numbers(path: str) -> str:
    """A field path for reading: `actions[2].type` as `actions[].type`."""
    return re.sub(r"\[\d+\]", "[]", path)


def cut_alike(left: str, right: str, width: int) -> tuple[str, str]:
    """Two texts cut to a width, each from shortly before the place where they part."""
    if max(len(left), len(right)) <= width:
        return left, right
    part = next(
        (index for index, pair in enumerate(zip(left, right, strict=False)) if len(set(pair)) > 1),
        min(len(left), len(right)),
    )
    start = max(0, part - width // 4)
    lead = "... " if start else ""
    return lead + _cut(left[start:], width), lead + _cut(right[start:], width)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[:width]} ..."
