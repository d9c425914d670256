"""Traces: a configuration and a list of ops, saved as JSON lines.

The first line is the header, every other line one op. A file is plain text, so that a change to
it reads well in a diff; what is written is always the same bytes for the same trace. Blank lines
are allowed. A bad file gives one `TraceError` that names file, line and field, before anything of
it is run.

Hides how JSON is parsed and how a decoder's complaint is turned into a sentence.
"""

from __future__ import annotations

import difflib
import os
import re
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

import msgspec

from .config import Config, problems
from .ops import AnyOp, CoreInsert, CoreMatch, Namespace, Op
from .tokens import key_length

FORMAT_VERSION = 4
"""The version of the file format that this code writes, and the newest that it reads."""

MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {
    # Version 2 added `signature`, `rule` and `known`; nothing that was there has changed.
    1: lambda header: header | {"version": 2},
    # Version 3 added windows and states: settings, ops and operands, all with defaults.
    2: lambda header: header | {"version": 3},
    # Version 4 added `runs` and `answer` of core ops, and the node reference `answer:N`.
    3: lambda header: header | {"version": 4},
}
"""How a header of a version becomes one of the next."""

ADDED_FIELDS = {
    2: ("signature", "rule", "known"),
    3: (
        "config.window",
        "config.draft_window",
        "config.aux_window",
        "config.window_capacity",
        "config.window_interval",
        "config.window_gates",
        "config.window_ring",
        "config.window_replay",
        "config.states",
        "config.state_chunk",
        "config.state_cap",
        "config.state_buffer",
        "config.state_skip_lock",
    ),
}
"""Header fields by the version that brought them; an older header that holds one is refused."""

MAX_TRACE_BYTES = 256 * 2**20
"""Larger files are refused: they are taken for something else."""

MAX_BLOCK_ID = 2**53
"""Block ids reach up to here, so that their tokens fit 64 bits."""

MAX_KEY_TOKENS = 2**24
"""Tokens of a core op's key at most: a few characters of a run could ask for all memory."""

MAX_ANSWER = 10**15 - 1
"""Answers are numbered up to here: as far as a node reference can spell them."""

NODE_REF = re.compile(
    r"root|offered|(live|stale|request):[0-9]{1,9}|answer:[0-9]{1,15}|bogus:-?[0-9]{1,20}"
)
"""How a node reference is spelled."""


class Known(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """An entry of the ledger: a difference of one core from all others that is understood.

    It explains a divergence of a pair in which one side is `core` at one of `releases` and the
    other is not, if the signature matches one of `signatures` and the shrunk trace holds an op of
    every kind in `needs`, its tree every one of `components` and, if there are any, one of
    `policies`. `*` stands for anything, in releases too; a core without a release has that alone.
    Sides in signatures are named without their releases.
    """

    core: str
    releases: list[str]
    signatures: list[str]
    needs: list[str] = []
    components: list[str] = []
    policies: list[str] = []


class Header(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The first line of a trace.

    `note` says what the trace is for; `source`, `seed` and `profile` where it comes from; `pair`
    which cores it was saved for; `expect` what a replay must show, `signature` which divergence,
    `rule` the rule that decides about it; `known` makes it an entry of the ledger.
    """

    treedrift: Literal["trace"]
    version: int
    note: str = ""
    source: str = ""
    seed: int | None = None
    profile: str | None = None
    pair: tuple[str, str] | None = None
    expect: Literal["agrees", "diverges"] = "agrees"
    signature: str | None = None
    rule: str | None = None
    known: Known | None = None
    config: Config = Config()


class Trace(msgspec.Struct):
    """A header and the ops that follow it."""

    header: Header
    ops: list[AnyOp]


class TraceError(Exception):
    """A file that is not a valid trace, or that can't be read or written."""

    def __init__(
        self, file: str, line: int | None, field: str | None, problem: str, what_to_do: str
    ) -> None:
        """`line` counts from 1 and is None where the whole file is meant, as is `field`."""
        where = file if line is None else f"{file}:{line}"
        subject = problem if field is None else f"field `{field}`: {problem}"
        super().__init__(f"{where}: {subject}; {what_to_do}")
        self.file = file
        self.line = line
        self.field = field
        self.problem = problem
        self.what_to_do = what_to_do


_OP_DECODER = msgspec.json.Decoder[AnyOp](AnyOp)
_ENCODER = msgspec.json.Encoder()
OP_TYPES: dict[str, type[Op]] = {
    str(kind.__struct_config__.tag): kind
    for union in get_args(AnyOp)
    for kind in (get_args(union) or (union,))
}
"""Every op type by its name in a trace, in the order of the op language."""

_COMPRESSED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "zip"}


def new_trace(config: Config, ops: Iterable[AnyOp], **header: Any) -> Trace:
    """A trace of the current version; `header` are further fields of `Header`."""
    made = Header(treedrift="trace", version=FORMAT_VERSION, config=config, **header)
    return Trace(made, list(ops))


def dump_trace(trace: Trace) -> bytes:
    """The bytes of a trace's file; the same for equal traces, wherever their ops come from."""
    ops = map(_with_own_defaults, trace.ops)
    lines = [_ENCODER.encode(trace.header), *map(_ENCODER.encode, ops)]
    return b"".join(msgspec.json.format(line, indent=0) + b"\n" for line in lines)


def _with_own_defaults(op: AnyOp) -> AnyOp:
    """The op, its default values being the very objects that its type declares.

    The encoder leaves a text or a record out only if it is that object, and an op that came from
    another process or was decoded has equal ones of its own.
    """
    strange = {
        name: default
        for name, default in _OBJECT_DEFAULTS[type(op)]
        if (value := getattr(op, name)) is not default and value == default
    }
    return msgspec.structs.replace(op, **strange) if strange else op


def read_trace(path: str | Path) -> Trace:
    """Read and check a trace file. Raises `TraceError`."""
    name = str(path)
    try:
        size = os.stat(path).st_size
        if size > MAX_TRACE_BYTES:
            limit = MAX_TRACE_BYTES // 2**20
            raise TraceError(
                name, None, None, f"the file has {size} bytes", f"a trace has at most {limit} MiB"
            )
        data = Path(path).read_bytes()
    except OSError as error:
        raise read_error(name, error) from error
    return parse_trace(data, name)


def read_error(name: str, error: OSError) -> TraceError:
    """The error for a file that can't be read."""
    reason = error.strerror or str(error)
    return TraceError(name, None, None, f"can't be read: {reason}", "check the path")


def write_trace(path: str | Path, trace: Trace, *, overwrite: bool = False) -> None:
    """Write a trace in one step; another file of that name is replaced only with `overwrite`.

    Raises `TraceError` for a trace that could not be read back, and when the file can't be written.
    """
    data = dump_trace(trace)
    target = Path(path)
    parse_trace(data, str(path))
    try:
        if not overwrite and target.exists():
            if target.read_bytes() == data:
                return
            raise TraceError(
                str(path), None, None, "exists with other content", "choose another name"
            )
        _write_atomically(target, data)
    except OSError as error:
        reason = error.strerror or str(error)
        raise TraceError(
            str(path), None, None, f"can't be written: {reason}", "check the folder"
        ) from error


def _write_atomically(target: Path, data: bytes) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        # A temporary file is private; a trace is as readable as other new files.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(draft, 0o666 & ~mask)
        os.replace(draft, target)
    except BaseException:
        os.unlink(draft)
        raise


def validate(trace: Trace, name: str = "<trace>") -> None:
    """Check a trace that was built in memory as if it were read from a file `name`."""
    parse_trace(dump_trace(trace), name)


def parse_trace(data: bytes, name: str) -> Trace:
    """The trace that a file's bytes hold; `name` is the file's name in errors."""
    _refuse_binary(data, name)
    lines = [(number, line) for number, line in enumerate(data.split(b"\n"), 1) if line.strip()]
    if not lines:
        raise TraceError(name, None, None, "the file is empty", "a trace starts with a header line")
    # Only a line that no line break closes can have been cut.
    cut = lines[-1][0] if not data.endswith(b"\n") else 0
    (first, header_line), *rest = lines
    header = _parse_header(header_line, name, first, cut)
    decode = _OP_DECODER.decode
    ops: list[AnyOp] = []
    for number, line in rest:
        try:
            op = decode(line)
        except msgspec.MsgspecError as error:
            raise _op_error(error, line, name, number, cut) from None
        wrong = _operand_problem(op)
        if wrong is not None:
            raise TraceError(name, number, *wrong)
        ops.append(op)
    return Trace(header, ops)


def _refuse_binary(data: bytes, name: str) -> None:
    for magic, kind in _COMPRESSED.items():
        if data.startswith(magic):
            raise TraceError(
                name, 1, None, f"the file is compressed ({kind})", "decompress it first"
            )
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise TraceError(
            name, line, None, "the file is not UTF-8 text", "a trace is JSON lines"
        ) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise TraceError(name, line, None, "the file is binary", "a trace is JSON lines")


def _parse_header(line: bytes, name: str, number: int, cut: int) -> Header:
    try:
        raw = msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        raise _not_json(error, name, number, cut) from None
    _refuse_foreign(raw, name, number)
    _refuse_early_fields(raw, name, number)
    for version in range(raw["version"], FORMAT_VERSION):
        raw = MIGRATIONS[version](raw)
    try:
        header = msgspec.convert(raw, Header)
    except msgspec.ValidationError as error:
        field, problem = complaint(error)
        owner = Config if field.startswith("config.") else Header
        raise TraceError(name, number, field, problem, _advice(field, problem, owner)) from None
    for problem in problems(header.config):
        field, _, said = problem.partition(" ")
        raise TraceError(name, number, f"config.{field}", said, "correct the header's config")
    return header


def _refuse_foreign(raw: Any, name: str, number: int) -> None:
    """Refuse what is JSON but no header that this version can read."""
    if not isinstance(raw, dict):
        raise TraceError(
            name, number, None, "the first line is not a header", "a header is a JSON object"
        )
    if "hash_ids" in raw:
        raise TraceError(
            name, number, "treedrift", "missing; this is a request log", "import it instead"
        )
    if "op" in raw:
        raise TraceError(
            name, number, "treedrift", "missing; the file starts with an op", "add a header line"
        )
    if raw.get("treedrift") != "trace":
        found = "missing" if "treedrift" not in raw else f"is {raw['treedrift']!r}"
        raise TraceError(
            name, number, "treedrift", found, 'a trace\'s header has `"treedrift": "trace"`'
        )
    version = raw.get("version")
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        found = "missing" if version is None else f"is {version!r}"
        raise TraceError(
            name, number, "version", found, f"expected a number up to {FORMAT_VERSION}"
        )
    if version > FORMAT_VERSION:
        raise TraceError(
            name,
            number,
            "version",
            f"is {version}, and this treedrift reads up to {FORMAT_VERSION}",
            "use a newer treedrift",
        )


def _refuse_early_fields(raw: dict[str, Any], name: str, number: int) -> None:
    """Refuse a field that the header's version does not have: its own readers would as well."""
    config = raw.get("config")
    settings = config if isinstance(config, dict) else {}
    held = {*raw, *(f"config.{name}" for name in settings)}
    for version, fields in ADDED_FIELDS.items():
        for field in fields:
            if field in held and raw["version"] < version:
                raise TraceError(
                    name,
                    number,
                    field,
                    f"unknown in version {raw['version']}",
                    f'write `"version": {version}`',
                )


def _not_json(error: msgspec.DecodeError, name: str, number: int, cut: int) -> TraceError:
    if number == cut:
        return TraceError(
            name, number, None, "the file ends inside this line", "it was cut; delete the line"
        )
    return TraceError(
        name, number, None, f"not JSON ({error})", "a trace has one JSON object a line"
    )


def _op_error(
    error: msgspec.MsgspecError, line: bytes, name: str, number: int, cut: int
) -> TraceError:
    """The error for a line that is no op."""
    try:
        raw = msgspec.json.decode(line)
    except msgspec.DecodeError as broken:
        return _not_json(broken, name, number, cut)
    if not isinstance(raw, dict):
        return TraceError(name, number, None, "not a JSON object", "an op is a JSON object")
    if "treedrift" in raw:
        return TraceError(name, number, "treedrift", "a second header", "keep one header a file")
    kind = raw.get("op")
    if not isinstance(kind, str):
        found = "missing" if kind is None else f"is {kind!r}"
        return TraceError(name, number, "op", found, "every op names its kind")
    if kind not in OP_TYPES:
        return TraceError(name, number, "op", f"unknown op {kind!r}", _closest(kind, OP_TYPES))
    field, problem = complaint(error)
    return TraceError(name, number, field, problem, _advice(field, problem, OP_TYPES[kind]))


def complaint(error: Exception) -> tuple[str, str]:
    """The field and the problem of a decoder's message, in our words."""
    text, _, place = str(error).partition(" - at ")
    path = place.strip("`").removeprefix("$").removeprefix(".")
    named = re.fullmatch(r"Object (contains unknown|missing required) field `(.*)`", text)
    if named is None:
        return path, text[:1].lower() + text[1:].replace("`", "")
    field = f"{path}.{named[2]}" if path else named[2]
    return field, "unknown" if named[1].startswith("contains") else "missing"


def _advice(field: str, problem: str, owner: type[msgspec.Struct]) -> str:
    """What to write in a field, or the closest one that exists."""
    field = re.sub(r"\[.*", "", field)
    top, _, last = field.rpartition(".")
    if top == "namespace":
        owner = Namespace
    if problem == "unknown":
        return _closest(last, owner.__struct_fields__)
    hint = get_type_hints(owner).get(last)
    choices = [choice for part in (hint, *get_args(hint)) for choice in get_args(part)]
    if choices and all(isinstance(choice, str) for choice in choices):
        return f"known: {', '.join(choices)}"
    return "add it" if problem == "missing" else "correct the value"


def _closest(word: str, known: Iterable[str]) -> str:
    names = sorted(known)
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    return f"did you mean `{near[0]}`?" if near else f"known: {', '.join(names)}"


_OBJECT_DEFAULTS = {
    kind: [
        (field.name, field.default)
        for field in msgspec.structs.fields(kind)
        if isinstance(field.default, str | msgspec.Struct)
    ]
    for kind in OP_TYPES.values()
}
_NODE_FIELDS = {
    kind: tuple(f for f in ("node", "until", "nodes") if f in kind.__struct_fields__)
    for kind in OP_TYPES.values()
}
_NUMBER_FIELDS = {
    kind: tuple(f for f, hint in get_type_hints(kind).items() if hint in (int, int | None))
    for kind in OP_TYPES.values()
}
_WITH_TOKENS = frozenset(k for k in OP_TYPES.values() if "tokens" in k.__struct_fields__)


def _operand_problem(op: Any) -> tuple[str, str, str] | None:
    """Field, problem and advice for an operand that its type alone does not rule out."""
    kind = type(op)
    for field in _NODE_FIELDS[kind]:
        value = getattr(op, field)
        for ref in value if field == "nodes" else (value,):
            if NODE_REF.fullmatch(ref) is None:
                advice = "write root, offered, live:3, stale:0, answer:7, request:1 or bogus:-1"
                return field, f"{ref!r} is no node reference", advice
    for counted in _NUMBER_FIELDS[kind]:
        number = getattr(op, counted)
        if number is not None and not -(2**63) <= number < 2**64:
            return counted, f"{number} is out of range", "numbers have at most 64 bits"
    tokens = op.tokens if kind in _WITH_TOKENS else ()
    if tokens and not -(2**63) <= min(tokens) <= max(tokens) < 2**63:
        return "tokens", "a token is out of range", "tokens are signed 64-bit numbers"
    blocks = getattr(op, "blocks", None)
    if blocks and not 0 <= min(blocks) <= max(blocks) <= MAX_BLOCK_ID:
        return "blocks", "a block id is out of range", f"block ids are 0 to {MAX_BLOCK_ID}"
    return _key_problem(op) if isinstance(op, CoreMatch | CoreInsert) else None


def _key_problem(op: CoreMatch | CoreInsert) -> tuple[str, str, str] | None:
    """What is wrong with the runs of a key or the number of its answer."""
    for first, count in op.runs:
        if count < 1:
            return "runs", f"a run of {count} tokens", "a run is [first token, how many of them]"
        if not -(2**63) <= first <= 2**63 - count:
            return "runs", "a token is out of range", "tokens are signed 64-bit numbers"
    length = key_length(op)
    if length > MAX_KEY_TOKENS:
        return "runs", f"the key has {length} tokens", f"a key has at most {MAX_KEY_TOKENS}"
    if op.answer is not None and not 0 <= op.answer <= MAX_ANSWER:
        return "answer", f"{op.answer} is out of range", f"answers are numbered 0 to {MAX_ANSWER}"
    return None
