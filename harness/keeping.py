"""Puts traces into a corpus, and moves a failure that is fixed to the regressions.

A corpus has three shelves. `seeds` and `regressions` agree, `known` is the ledger. What goes in
has shown by replays that it belongs there. Nothing is overwritten, and a trace is written to its
new place before it leaves the old one, so that an interruption loses none.
"""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Literal

import msgspec

from .compare import without_releases
from .corpus import Verdict, Verifier
from .ledger import Ledger, core_of, entry_from, release_of
from .lockstep import Pair
from .trace import FORMAT_VERSION, Known, Trace, TraceError, read_trace, write_trace

Shelf = Literal["seeds", "regressions", "known"]


class Facts(msgspec.Struct, kw_only=True):
    """What whoever keeps a trace says about it; what is not said is taken from its header.

    `core`, `releases` and `any_op` are for the ledger: whose difference it is, where it holds, and
    whether it counts as known whatever op shows it.
    """

    name: str | None = None
    rule: str | None = None
    note: str | None = None
    core: str | None = None
    releases: list[str] = []
    needs: list[str] = []
    any_op: bool = False


class Kept(msgspec.Struct):
    """Where a trace went, and what its replays showed."""

    file: Path
    verdict: Verdict


def keep(path: Path, pair: Pair, corpus: Path, shelf: Shelf, facts: Facts) -> Kept:
    """Copy a trace into a corpus, once its replays have shown that it belongs on that shelf.

    Raises `TraceError` if it is no good, shows something else, is there already under another
    name, or its name is taken.
    """
    trace = read_trace(path)
    target = corpus / shelf / f"{facts.name or _plain_stem(path)}.jsonl"
    if target.exists():
        raise _bad(target, "exists already", "choose another --name")
    twin = _twin(trace, corpus)
    if twin is not None:
        raise _bad(path, f"has the same configuration and ops as {twin}", "it is kept already")
    _label(trace, pair, facts, path)
    trace.header.expect = "diverges" if shelf == "known" else "agrees"
    trace.header.known = None
    shown = _replay(trace, pair, corpus)
    if not shown.expected or shown.kind not in ("AGREES", "DIVERGES"):
        raise _misplaced(path, pair, shelf, shown)
    if shelf == "known":
        _enter(trace, pair, facts, shown, target)
    elif shelf == "seeds":
        trace.header.signature = None
    write_trace(target, trace)
    return Kept(target, shown)


def _plain_stem(path: Path) -> str:
    """A file's name without its suffixes: shrunk traces have two."""
    return path.name.removesuffix(".jsonl").removesuffix(".min")


def _twin(trace: Trace, corpus: Path) -> Path | None:
    """A trace of the corpus with the same configuration and ops."""
    same = (trace.header.config, trace.ops)
    for path in sorted(corpus.rglob("*.jsonl")):
        other = read_trace(path)
        if (other.header.config, other.ops) == same:
            return path
    return None


def _label(trace: Trace, pair: Pair, facts: Facts, path: Path) -> None:
    header = trace.header
    header.version = FORMAT_VERSION
    header.pair = _placed(pair)
    header.rule = facts.rule or header.rule
    header.note = facts.note or header.note
    if not header.note:
        raise TraceError(str(path), 1, "note", "missing", "say what the trace is for: --note")


def _placed(pair: Pair) -> Pair:
    """A pair with the releases that its names stand for today, so that it means the same later."""
    left, right = (f"{core_of(name)}@{release_of(name)}".rstrip("@") for name in pair)
    return left, right


def _replay(trace: Trace, pair: Pair, corpus: Path) -> Verdict:
    verifier = Verifier(Ledger.read(corpus / "known"))
    try:
        return verifier.verdict(trace, pair)
    finally:
        verifier.close()


def _misplaced(path: Path, pair: Pair, shelf: Shelf, shown: Verdict) -> TraceError:
    """Why a trace does not belong on a shelf."""
    names = ",".join(pair)
    if shown.kind == "FIXED":
        problem = f"agrees on {names}, so there is no difference to know"
        return _bad(path, problem, "keep it with --to regressions")
    what_to_do = "replay it with treedrift show"
    if shown.kind == "DIVERGES":
        said = shown.divergence.signature if shown.divergence is not None else ""
        problem = f"diverges on {names}: {said}"
        if shelf != "known":
            what_to_do = "keep it once that is repaired, or --to known if it stays"
        else:
            problem = f"diverges on {names} ({shown.detail}): {said}"
        return _bad(path, problem, what_to_do)
    return _bad(path, f"is {shown.kind} on {names}: {shown.detail}", what_to_do)


def _enter(trace: Trace, pair: Pair, facts: Facts, shown: Verdict, target: Path) -> None:
    """Make a trace an entry of the ledger. Raises `TraceError` if too little is said."""
    assert shown.divergence is not None, "what diverges has a divergence"
    guilty = shown.divergence.side
    core = facts.core or (None if guilty is None else core_of(guilty))
    if core is None or core not in map(core_of, pair):
        known = " or ".join(map(core_of, pair))
        raise _bad(target, "whose difference it is can't be told", f"add --core {known}")
    name = next(name for name in pair if core_of(name) == core)
    signatures = [
        without_releases(signature, pair).replace(name, core) for signature in shown.signatures
    ]
    if facts.any_op:
        signatures = [re.sub(r"^(\w+):\w*:", r"\1:*:", signature) for signature in signatures]
    trace.header.signature = shown.divergence.signature
    trace.header.known = Known(
        core=core,
        releases=facts.releases or [release_of(name) or "*"],
        signatures=signatures,
        needs=facts.needs,
    )
    entry_from(trace, str(target))


# --- Promoting ----------------------------------------------------------------------------


def promote(path: Path, pair: Pair, corpus: Path) -> Path:
    """Keep a failure that agrees on a pair now as a regression; returns its new file.

    A file of the ledger moves. If it also tells of other releases, it stays there for those. Any
    other file stays where it is. Raises `TraceError`.
    """
    trace = read_trace(path)
    rest = _rest_of(trace, pair, path) if _is_in(path, corpus / "known") else None
    target = corpus / "regressions" / f"{_plain_stem(path)}.jsonl"
    write_trace(target, _as_regression(trace, pair))
    if rest is not None:
        write_trace(path, rest, overwrite=True)
    elif _is_in(path, corpus / "known"):
        path.unlink()
    return target


def _as_regression(trace: Trace, pair: Pair) -> Trace:
    """The trace as one that must agree; its note says since when."""
    made = copy.deepcopy(trace)
    header = made.header
    header.pair = _placed(pair)
    since = f"fixed: {' and '.join(header.pair)} agree"
    header.version = FORMAT_VERSION
    header.note = f"{header.note}; {since}" if header.note else since
    header.expect = "agrees"
    header.known = None
    return made


def _rest_of(trace: Trace, pair: Pair, path: Path) -> Trace | None:
    """What stays in the ledger of an entry that is fixed in one of its releases."""
    known = trace.header.known
    if known is None:
        return None
    side = entry_from(trace, str(path)).side(pair)
    if side is None:
        problem = f"{','.join(pair)} has not just one side that it is about"
        raise _bad(path, problem, "name a pair of that core and another one")
    release = release_of(pair[side])
    others = [one for one in known.releases if one != release]
    if any("*" in one for one in others) and release:
        problem = "`*` stands for more releases than were replayed"
        raise TraceError(str(path), 1, "known.releases", problem, "name those in which it holds")
    if not others or not release:
        return None
    rest = copy.deepcopy(trace)
    assert rest.header.known is not None, "it was there before"
    rest.header.known.releases = others
    return rest


def _is_in(path: Path, folder: Path) -> bool:
    return path.resolve().parent == folder.resolve()


def _bad(path: Path, problem: str, what_to_do: str) -> TraceError:
    return TraceError(str(path), None, None, problem, what_to_do)
