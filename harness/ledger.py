"""The ledger of known differences: which divergence is understood, and whether it still shows.

An entry is a trace of `corpora/known/` whose header says of which core it tells, in which
releases, by which signatures, and which rule decides. Everything that a run finds is held against
it, so that what is new stands out.

Hides how signatures of different releases, and of a pair whose sides are exchanged, are compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from ..backends.registry import BackendName
from ..backends.sglang.environments import MissingEnvironmentError
from .compare import mirrored, without_releases
from .lockstep import Lockstep, Pair
from .opening import replay_settings
from .ops import kind_of
from .trace import OP_TYPES, Known, Trace, TraceError, read_trace

KNOWN_FOLDER = Path("corpora/known")
"""Where a checkout keeps its ledger."""


class Entry(msgspec.Struct, kw_only=True, frozen=True):
    """One known difference; `name` is the stem of its file, `rule` the rule that decides."""

    name: str
    trace: Trace
    known: Known
    rule: str
    note: str = ""

    def applies_to(self, pair: Pair) -> bool:
        """Whether the entry says something about a pair: one side is its core, at its releases."""
        return self.side(pair) is not None

    def explains(self, pair: Pair, signature: str) -> bool:
        """Whether a divergence of a pair with this signature is the one that is known.

        The sides of the pair may be exchanged. What the entry needs is not looked at.
        """
        side = self.side(pair)
        if side is None:
            return False
        plain = without_releases(signature, pair).replace(pair[side], self.known.core)
        if side != self._own_side():
            plain = mirrored(plain)
        return any(_matches(pattern, plain) for pattern in self.known.signatures)

    def fits(self, trace: Trace | None) -> bool:
        """Whether a trace has what the entry needs: ops, components, and one of its policies."""
        known = self.known
        if trace is None:
            return not (known.needs or known.components or known.policies)
        config = trace.header.config
        has_all = set(known.needs) <= set(map(kind_of, trace.ops))
        has_all &= set(known.components) <= set(config.components)
        return has_all and (not known.policies or config.policy in known.policies)

    def side(self, pair: Pair) -> int | None:
        """Which side of a pair is the core at one of the releases; None unless it is just one."""
        sides = [
            index
            for index, name in enumerate(pair)
            if core_of(name) == self.known.core
            and any(_matches(release, release_of(name)) for release in self.known.releases)
        ]
        return sides[0] if len(sides) == 1 else None

    def _own_side(self) -> int:
        """Which side of the trace's own pair the core is, by its name alone where that tells."""
        own = self.trace.header.pair
        assert own is not None, "an entry has a pair"
        sides = [index for index in (0, 1) if core_of(own[index]) == self.known.core]
        return sides[0] if len(sides) == 1 else self.side(own) or 0


class Ledger(msgspec.Struct):
    """All known differences, in order of their names."""

    entries: list[Entry] = []

    @classmethod
    def read(cls, folder: str | Path = KNOWN_FOLDER) -> Ledger:
        """Read and check every entry of a folder; none if there is no such folder.

        Raises `TraceError`, also for a trace that says too little to be an entry.
        """
        return cls([entry_of(path) for path in sorted(Path(folder).glob("*.jsonl"))])

    def judge(self, pair: Pair, signature: str, trace: Trace | None) -> Entry | None:
        """The entry that explains a divergence of a pair; None if it is new.

        `trace` is the divergence's own, as far shrunk as it is; without one, entries that need
        anything of it explain nothing.
        """
        for entry in self.entries:
            if entry.fits(trace) and entry.explains(pair, signature):
                return entry
        return None

    def applicable(self, pair: Pair) -> list[Entry]:
        """The differences that a pair is expected to show."""
        return [entry for entry in self.entries if entry.applies_to(pair)]


def check(entry: Entry, lockstep: Lockstep, pair: Pair) -> bool:
    """Whether a known difference still shows on a pair that it applies to, by a replay.

    `lockstep` has the sides of the pair. A worker that fails counts as not showing it.
    """
    sides = Lockstep({name: lockstep.clients[name] for name in pair}, [pair])
    config = entry.trace.header.config
    result = sides.run(config, entry.trace.ops, replay_settings([pair], config))
    return any(entry.explains(pair, found.signature) for found in result.divergences)


def core_of(name: str) -> str:
    """A side's core, without the environment that it lives in."""
    return name.partition("@")[0]


def release_of(name: str) -> str:
    """The release that a side's core comes from, or its environment's name; empty if it has none.

    A released core without an environment is that of the newest one. An environment that is not
    installed is still what the name says.
    """
    core, _, environment = name.partition("@")
    try:
        place = BackendName(core, environment or None).place()
    except MissingEnvironmentError:
        return environment.removeprefix("sglang-")
    return "" if place is None else place.release or place.name


def _matches(pattern: str, text: str) -> bool:
    """Whether a text is what a pattern says, in which `*` stands for anything."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text) is not None


# --- Reading ------------------------------------------------------------------------------


def entry_of(path: Path) -> Entry:
    """The entry of a file. Raises `TraceError`."""
    return entry_from(read_trace(path), str(path))


def entry_from(trace: Trace, file: str) -> Entry:
    """A trace as an entry of the ledger. Raises `TraceError` if its header says too little."""
    header = trace.header
    known, rule = header.known, header.rule
    if known is None:
        raise _bad(file, "known", "missing", "a trace in the ledger says what is known about it")
    if not rule:
        raise _bad(file, "rule", "missing", "name the rule that decides, as in EVT-21")
    if header.expect != "diverges":
        raise _bad(file, "expect", f"is {header.expect!r}", "a known difference diverges")
    entry = Entry(name=Path(file).stem, trace=trace, known=known, rule=rule, note=header.note)
    _check_pair(entry, file)
    _check_patterns(entry, file)
    _check_needs(known.needs, trace, file)
    if not entry.fits(trace):
        raise _bad(file, "known", "the trace has not what it needs", "compare its configuration")
    return entry


def _check_pair(entry: Entry, file: str) -> None:
    pair, core = entry.trace.header.pair, entry.known.core
    if pair is None:
        raise _bad(file, "pair", "missing", f"name the pair that shows it, as in python,{core}")
    if core not in map(core_of, pair):
        raise _bad(file, "known.core", f"{core!r} is no side of the pair", "name one of them")
    if not entry.known.releases:
        raise _bad(file, "known.releases", "empty", "name releases, or * for all of them")


def _check_patterns(entry: Entry, file: str) -> None:
    header, known = entry.trace.header, entry.known
    if not known.signatures:
        raise _bad(file, "known.signatures", "empty", "add the signature that a replay shows")
    if header.signature is None:
        raise _bad(file, "signature", "missing", "add the one that a replay shows")
    assert header.pair is not None, "a pair was looked for before"
    plain = without_releases(header.signature, header.pair)
    if not any(_matches(pattern, plain) for pattern in known.signatures):
        raise _bad(file, "known.signatures", "none is that of the trace", f"add {plain}")


def _check_needs(needs: Iterable[str], trace: Trace, file: str) -> None:
    kinds = set(map(kind_of, trace.ops))
    for kind in needs:
        if kind not in OP_TYPES:
            raise _bad(file, "known.needs", f"unknown op {kind!r}", "name ops as traces do")
        if kind not in kinds:
            raise _bad(file, "known.needs", f"the trace has no {kind!r}", "leave it out")


def _bad(file: str, field: str, problem: str, what_to_do: str) -> TraceError:
    return TraceError(file, 1, field, problem, what_to_do)
