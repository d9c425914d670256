"""`treedrift repro`: writes a trace as a short pytest that fails by itself while two cores differ.

The test imports `treedrift` alone, holds the ops as code that can be edited, and is formatted as
ruff formats. The same trace and the same cores give the same file.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from .backends.registry import RELEASED, BackendName
from .harness.corpus import pair_of
from .harness.explain import explain
from .harness.explanation import Explanation
from .harness.lockstep import Pair
from .harness.opening import open_lockstep
from .harness.trace import Trace, read_trace
from .options import PairOption, UsageError, out, parse_pairs
from .reports.explained import headline_of, written
from .reports.words import plural

WIDTH = 88
"""Columns of a generated file: what formatters use unless they are told otherwise."""

TOKENS_A_LINE = 16

LONG_OPS = 100
"""A test of more ops is written too, but nobody will read it."""


def repro(
    path: Annotated[Path, typer.Argument(help="A trace.")],
    pair: PairOption = None,
    target: Annotated[
        Path | None, typer.Option("--out", "-o", help="The test to write; else test_TRACE.py.")
    ] = None,
    force: Annotated[bool, typer.Option(help="Overwrite the test if it is there.")] = False,
) -> None:
    """Write a trace as a short pytest that fails by itself while the two cores differ."""
    trace = read_trace(path)
    chosen = parse_pairs(pair)[0] if pair else pair_of(trace)
    target = target or Path(f"test_{_slug(path.name.split('.')[0])}.py")
    if target.exists() and not force:
        raise UsageError(f"{target} is there already; choose another name, or give --force")
    explanation = _explain(trace, chosen)
    _write(target, repro_text(trace, chosen, path.name, explanation))
    today = "agree on it today" if explanation is None else "differ, so it fails"
    out.print(f"{target}: {plural(len(trace.ops), 'op')}; {' and '.join(chosen)} {today}")
    if len(trace.ops) > LONG_OPS and explanation is not None:
        out.print(f"it is long; a short one takes: treedrift shrink {path}", highlight=False)
    out.print(f"run it with: pytest {target}", highlight=False)


def _write(target: Path, text: str) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{target} can't be written: {error.strerror}") from error


def _explain(trace: Trace, pair: Pair) -> Explanation | None:
    lockstep = open_lockstep([pair])
    try:
        return explain(trace, lockstep, pair)
    finally:
        lockstep.close()


def _slug(text: str) -> str:
    return re.sub(r"\W+", "_", text).strip("_").lower()


# --- The text -----------------------------------------------------------------------------


def repro_text(trace: Trace, pair: Pair, source: str, explanation: Explanation | None) -> str:
    """The whole file; `source` is the name of the trace's file."""
    needs_skip = any(BackendName.parse(name).name in RELEASED for name in pair)
    imports = ["import treedrift", "from treedrift import Config, ops"]
    parts = [
        _docstring(trace, pair, source, explanation),
        "\n".join((["import pytest"] if needs_skip else []) + imports),
        f"PAIR = ({_quote(pair[0])}, {_quote(pair[1])})",
        f"CONFIG = {_call('Config', _changed(trace.header.config), indent=9)}",
        _ops(trace),
    ]
    name = "_and_".join(map(_slug, pair))
    decorator = ""
    if needs_skip:
        parts.append("MISSING = treedrift.why_missing(*PAIR)")
        decorator = "@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))\n"
    body = "    treedrift.assert_agree(PAIR, CONFIG, OPS)\n"
    test = f"{decorator}def test_{name}_agree() -> None:\n{body}"
    return "\n\n".join(parts) + f"\n\n\n{test}"


def _docstring(trace: Trace, pair: Pair, source: str, explanation: Explanation | None) -> str:
    header = trace.header
    paragraphs = [f"{pair[0]} and {pair[1]} should agree here; written by treedrift from {source}."]
    paragraphs += [written(header.note)] if written(header.note) else []
    if explanation is not None:
        paragraphs += [f"They part: {headline_of(explanation)}.", f"Kind: {explanation.signature}"]
        if explanation.rule is not None:
            paragraphs.append(f"Rule {explanation.rule}: {explanation.rule_text or ''}".strip())
    paragraphs.append("It fails while the cores differ and passes once they agree.")
    text = "\n\n".join(_wrap(_plain(paragraph)) for paragraph in paragraphs)
    return f'"""{text}\n"""'


def _plain(text: str) -> str:
    """Text that neither ends a docstring nor escapes anything in it."""
    return " ".join(text.split()).replace("\\", "\\\\").replace('"""', "'''")


def _wrap(text: str) -> str:
    return textwrap.fill(text, WIDTH - 3, break_long_words=False, break_on_hyphens=False)


def _ops(trace: Trace) -> str:
    """The list of ops; where lines are too long, one that the formatter leaves alone."""
    calls = [_op(op) for op in trace.ops]
    lines = [f"    {call}," for call in calls]
    if not lines:
        return "OPS: list[ops.AnyOp] = []"
    if all(len(line) <= WIDTH for line in lines):
        return "\n".join(["OPS = [", *lines, "]"])
    wrapped = [
        line if len(line) <= WIDTH else _op_in_lines(op)
        for line, op in zip(lines, trace.ops, strict=True)
    ]
    reason = "# A formatter would give every token a line of its own."
    return "\n".join([reason, "# fmt: off", "OPS = [", *wrapped, "]", "# fmt: on"])


def _op(op: Any) -> str:
    return _call(f"ops.{type(op).__name__}", _changed(op))


def _op_in_lines(op: Any) -> str:
    """An op with a field a line, and long lists in lines of some tokens each."""
    lines = [f"    ops.{type(op).__name__}("]
    for name, value in _changed(op).items():
        line = f"        {name}={_literal(value)},"
        is_long = isinstance(value, list) and (len(value) > TOKENS_A_LINE or len(line) > WIDTH)
        if is_long:
            lines += [f"        {name}=[", *_items_in_lines(value), "        ],"]
        else:
            lines.append(line)
    return "\n".join([*lines, "    ),"])


def _items_in_lines(items: list[Any]) -> Iterator[str]:
    """Items of a list, as many a line as fit, in the way tokens are read best."""
    line, count = "", 0
    for item in map(_literal, items):
        if count == TOKENS_A_LINE or (count and len(line) + len(item) + 2 > WIDTH):
            yield line
            line, count = "", 0
        line += f" {item}," if count else f"            {item},"
        count += 1
    yield line


def _changed(record: Any) -> dict[str, Any]:
    """The fields of a record that it must be given to be as it is."""
    changed = {}
    for field in msgspec.structs.fields(record):
        value = getattr(record, field.name)
        default = field.default
        if field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        if field.required or value != default:
            changed[field.name] = value
    return changed


def _call(name: str, fields: dict[str, Any], indent: int | None = None) -> str:
    """A call on one line, or with an argument a line where `indent` columns stand before it."""
    shown = [f"{field}={_literal(value)}" for field, value in fields.items()]
    line = f"{name}({', '.join(shown)})"
    if indent is None or indent + len(line) <= WIDTH:
        return line
    arguments = [
        argument if len(argument) + 5 <= WIDTH else f"{field}={_mapping_in_lines(value)}"
        for argument, (field, value) in zip(shown, fields.items(), strict=True)
    ]
    return "\n".join([f"{name}(", *[f"    {argument}," for argument in arguments], ")"])


def _mapping_in_lines(mapping: dict[str, Any]) -> str:
    """A mapping of an argument, an entry a line; a configuration has nothing longer."""
    entries = [f"        {_literal(key)}: {_literal(item)}," for key, item in mapping.items()]
    return "\n".join(["{", *entries, "    }"])


def _literal(value: Any) -> str:
    if isinstance(value, msgspec.Struct):
        return _call(f"ops.{type(value).__name__}", _changed(value))
    if isinstance(value, str):
        return _quote(value)
    if isinstance(value, dict):
        return (
            f"{{{', '.join(f'{_literal(key)}: {_literal(item)}' for key, item in value.items())}}}"
        )
    if isinstance(value, tuple):
        inner = ", ".join(map(_literal, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return f"[{', '.join(map(_literal, value))}]" if isinstance(value, list) else repr(value)


def _quote(text: str) -> str:
    """A string literal, in double quotes where that needs no escapes, as formatters want it."""
    plain = repr(text)
    if plain.startswith("'") and '"' not in plain and "\\'" not in plain:
        return f'"{plain[1:-1]}"'
    return plain
