"""The environment variables that say what the shadow and the recorder do.

They are read when a cache asks for one of the two, not before: a wrong one stops the start of a
server that wants them, with a `VariableError` that says what to write, and touches no other.
Standard library alone. The page docs/inside-sglang.md shows the same table to readers.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

Value = TypeVar("Value")

FIRST_CORES = ("sglang-python", "sglang-rust", "treedrift-python", "treedrift-rust")
"""Cores that can serve SGLang's cache."""

AMBIGUOUS = ("python", "rust")
"""Names that SGLang and treedrift give to cores of their own."""

PREFIXES = ("TREEDRIFT_SHADOW_", "TREEDRIFT_RECORD_", "TREEDRIFT_TRACE_")
"""What starts like this is a variable of this table, or a mistake."""

FILES_MAX = 10_000
MIB_MAX = 256
"""Larger traces are refused when they are read."""


class VariableError(ValueError):
    """A variable has a value that can't be used; the message says which, and what is allowed."""


@dataclass(frozen=True)
class Variable(Generic[Value]):
    """One variable. `read` turns its text into a value, or says what is allowed."""

    name: str
    default: str
    meaning: str
    read: Callable[[str], Value]

    def value(self, environ: Mapping[str, str]) -> Value:
        """The value in this environment; an empty one counts as none. Raises `VariableError`."""
        text = environ.get(self.name, "").strip() or self.default
        try:
            return self.read(text)
        except ValueError as error:
            raise VariableError(f"{self.name}={text!r}: {error}") from error


# --- Reading ------------------------------------------------------------------------------


def _one_of(*names: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text in AMBIGUOUS and f"sglang-{text}" in names:
            raise ValueError(f"say whose core: sglang-{text} or treedrift-{text}")
        if text not in names:
            raise ValueError(f"must be one of {', '.join(names)}{hint(text, names)}")
        return text

    return read


def _second_core(text: str) -> str:
    if text in AMBIGUOUS:
        raise ValueError(f"say whose core: sglang-{text} or treedrift-{text}")
    if "@" in text:
        raise ValueError("a second core runs in the server's own process; leave out the @ part")
    if text.startswith(("sglang-", "treedrift-")):
        return _one_of(*FIRST_CORES)(text)
    return text


def _fraction(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1.0:
        raise ValueError("must be a number from 0 to 1, such as 0.25")
    return value


def _count(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and least <= int(text[:20]) <= most):
            raise ValueError(f"must be a whole number from {least} to {most}")
        return int(text)

    return read


def _folder(text: str) -> Path | None:
    """The folder as an absolute path, so that a server may change its own later."""
    if not text:
        return None
    try:
        folder = Path(text).expanduser().absolute()
        is_free = folder.is_dir() or not folder.exists()
    except (OSError, RuntimeError) as error:
        raise ValueError(f"must be a path to a folder: {error}") from error
    if not is_free:
        raise ValueError("must be a folder, and a file is there")
    return folder


def hint(text: str, names: Sequence[str]) -> str:
    """The end of a message about a name that is none of these: the one that was meant, if any."""
    close = difflib.get_close_matches(text, names, n=1)
    return f"; did you mean {close[0]}?" if close else ""


# --- The table ----------------------------------------------------------------------------

SHADOW_FIRST = Variable(
    "TREEDRIFT_SHADOW_FIRST",
    "sglang-rust",
    f"the core that serves the cache: {', '.join(FIRST_CORES)}",
    _one_of(*FIRST_CORES),
)
SHADOW_SECOND = Variable(
    "TREEDRIFT_SHADOW_SECOND",
    "treedrift-python",
    "the core that is compared with it: one of the same, `drill:NAME` or another core that a"
    " package brings to treedrift",
    _second_core,
)
SHADOW_MODE = Variable(
    "TREEDRIFT_SHADOW_MODE",
    "warn",
    "`warn` logs a difference and goes on with the first core alone; `strict` raises it",
    _one_of("warn", "strict"),
)
SHADOW_SAMPLE = Variable(
    "TREEDRIFT_SHADOW_SAMPLE",
    "1",
    "the share of caches that get a shadow, from 0 to 1; each cache is drawn by itself",
    _fraction,
)
SHADOW_SIZES_EVERY = Variable(
    "TREEDRIFT_SHADOW_SIZES_EVERY",
    "1",
    "sizes are compared after every n-th call that can change them",
    _count(1, 10**9),
)
RECORD_CORE = Variable(
    "TREEDRIFT_RECORD_CORE",
    "sglang-rust",
    f"the core that is recorded: {', '.join(FIRST_CORES)}",
    _one_of(*FIRST_CORES),
)
TRACE_DIR = Variable(
    "TREEDRIFT_TRACE_DIR",
    "",
    "the folder for traces, made if it isn't there; without one the shadow saves none, and the"
    " recorder records nothing",
    _folder,
)
TRACE_FILES = Variable(
    "TREEDRIFT_TRACE_FILES",
    "8",
    "how many traces a recorder keeps of each cache, dropping its oldest; at how many in the folder"
    " a shadow saves no more",
    _count(1, FILES_MAX),
)
TRACE_MIB = Variable(
    "TREEDRIFT_TRACE_MIB",
    "64",
    "the size of one recorded file, and of the run that a shadow keeps in memory to save it",
    _count(1, MIB_MAX),
)
TRACE_TOKENS = Variable(
    "TREEDRIFT_TRACE_TOKENS",
    "pseudonyms",
    "`pseudonyms` replaces tokens and names of users, `plain` writes the server's own",
    _one_of("pseudonyms", "plain"),
)

VARIABLES: tuple[Variable[Any], ...] = (
    SHADOW_FIRST,
    SHADOW_SECOND,
    SHADOW_MODE,
    SHADOW_SAMPLE,
    SHADOW_SIZES_EVERY,
    RECORD_CORE,
    TRACE_DIR,
    TRACE_FILES,
    TRACE_MIB,
    TRACE_TOKENS,
)
"""All of them, in the order of the page."""


@dataclass(frozen=True)
class Settings:
    """What all variables say. `trace_dir` is None where no traces are wanted."""

    first: str
    second: str
    strict: bool
    sample: float
    sizes_every: int
    record_core: str
    trace_dir: Path | None
    trace_files: int
    trace_bytes: int
    pseudonyms: bool


def read_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Read all variables, by default those of this process. Raises `VariableError`."""
    given = os.environ if environ is None else environ
    names = tuple(variable.name for variable in VARIABLES)
    for name in given:
        if name.startswith(PREFIXES) and name not in names:
            raise VariableError(f"{name}={given[name]!r}: no such variable{hint(name, names)}")
    return Settings(
        first=SHADOW_FIRST.value(given),
        second=SHADOW_SECOND.value(given),
        strict=SHADOW_MODE.value(given) == "strict",
        sample=SHADOW_SAMPLE.value(given),
        sizes_every=SHADOW_SIZES_EVERY.value(given),
        record_core=RECORD_CORE.value(given),
        trace_dir=TRACE_DIR.value(given),
        trace_files=TRACE_FILES.value(given),
        trace_bytes=TRACE_MIB.value(given) * 2**20,
        pseudonyms=TRACE_TOKENS.value(given) == "pseudonyms",
    )
