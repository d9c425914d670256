"""Lets `pytest corpora/` replay every trace as a test of its own.

A file that ends in `.jsonl` and starts with a trace's header is one test, named after the file. It
runs on the pair that it was saved for, or on every `--treedrift-pair A,B`, and is skipped where
that pair can't run. Other files are left alone.

Every run of pytest in this environment loads this module, so it imports nothing of the project
before there is a trace to replay. Hides which sides are open: each process keeps its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .harness.corpus import Verdict, Verifier
    from .harness.ledger import Ledger
    from .harness.lockstep import Pair

HEADER_BYTES_MAX = 64 * 1024
"""So much of a file's first line is read to see whether it is a header."""

VALUE_WIDTH = 300


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    parser.getgroup("treedrift", "saved traces of treedrift").addoption(
        "--treedrift-pair",
        action="append",
        metavar="A,B",
        help="replay traces on these two cores instead of those they were saved for; repeatable",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Check the pairs, and register the marker that leaves out what needs a released core."""
    if not any(line.startswith("released:") for line in config.getini("markers")):
        config.addinivalue_line("markers", "released: needs a released SGLang (treedrift env add)")
    config.stash[_RUN] = _Run(config)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> TraceFile | None:
    """Take traces, and nothing else."""
    if file_path.suffix != ".jsonl":
        return None
    header = _header_of(file_path)
    return None if header is None else TraceFile.from_parent(parent, path=file_path, header=header)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the traces that need a worker together: last, or first where others run meanwhile.

    A worker takes many seconds to get ready. A lone process replays everything else until then.
    Of several, the one that gets the first share of the traces starts it alone.
    """
    places = [index for index, item in enumerate(items) if isinstance(item, TraceItem)]
    first = hasattr(config, "workerinput")
    traces = [item for item in items if isinstance(item, TraceItem)]
    ordered = sorted(traces, key=lambda item: item.needs_worker != first)
    for index, item in zip(places, ordered, strict=True):
        items[index] = item


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start the workers of a lone process; it will need all of them."""
    config = session.config
    if config.option.collectonly or hasattr(config, "workerinput"):
        return
    for item in session.items:
        if isinstance(item, TraceItem) and item.needs_worker:
            config.stash[_RUN].prepare(item.pair)


def _header_of(path: Path) -> dict[str, Any] | None:
    """The header of a trace as it stands there, empty if it is broken; None for other files."""
    try:
        with path.open("rb") as file:
            line = b"\n"
            while line and not line.strip():
                line = file.readline(HEADER_BYTES_MAX)
    except OSError:
        return None
    try:
        found = json.loads(line)
    except ValueError:
        return {} if re.match(rb'\s*{\s*"treedrift"', line) else None
    return found if isinstance(found, dict) and "treedrift" in found else None


class TraceFile(pytest.File):
    """A trace: one test for every pair that it is replayed on."""

    def __init__(self, *, header: dict[str, Any], **arguments: Any) -> None:
        super().__init__(**arguments)
        self._header = header

    def collect(self) -> Iterator[TraceItem]:
        """The tests."""
        chosen = self.config.stash[_RUN].pairs
        for pair in chosen or [self._own_pair()]:
            name = self.path.stem
            if len(chosen) > 1:
                name += f"[{','.join(pair)}]"
            yield TraceItem.from_parent(self, name=name, pair=pair)

    def _own_pair(self) -> Pair:
        """The pair that the header names, if it does; whether it is right is seen later."""
        match self._header.get("pair"):
            case [str(left), str(right)]:
                return left, right
        return "python", "rust"


class TraceFailed(Exception):  # noqa: N818 -- what pytest shows is the verdict, not the class
    """A trace that is not as expected."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.kind)
        self.verdict = verdict


class TraceItem(pytest.Item):
    """The replay of one trace on one pair."""

    def __init__(self, *, pair: Pair, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.pair = pair
        # A core names its environment after an @, and these two always have one.
        self.needs_worker = any("@" in name or name.startswith("sglang-") for name in pair)
        if self.needs_worker:
            self.add_marker("released")

    def runtest(self) -> None:
        """Replay the trace. A pair that can't run it here is a reason to skip it."""
        found = self.config.stash[_RUN].verdict(self.path, self.pair)
        if found.kind == "UNSUPPORTED":
            pytest.skip(found.detail)
        if not found.expected:
            raise TraceFailed(found)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Where the sides part and the command that explains it; no traceback."""
        if not isinstance(excinfo.value, TraceFailed):
            return super().repr_failure(excinfo, style)
        return "\n".join(self._explain(excinfo.value.verdict))

    def _explain(self, found: Verdict) -> Iterator[str]:
        file, pair = self._shown_path(), ",".join(self.pair)
        yield f"{file}: {found.kind} on {pair}: {found.detail}"
        parting = found.divergence
        if parting is not None:
            in_drain = parting.op_index is None
            place = "in the final drain" if in_drain else f"at op {parting.op_index}"
            yield f"  {parting.signature}"
            yield f"  they part {place}: {parting.where}"
            if parting.kind == "difference":
                for name, value in zip(self.pair, (parting.left, parting.right), strict=True):
                    yield f"    {name:20} {str(value)[:VALUE_WIDTH]}"
        if found.kind == "FIXED":
            yield f"  keep it: treedrift corpus verify {file} --pair {pair} --promote"
        elif found.runs:
            yield f"  explain it: treedrift show {file} --pair {pair}"

    def _shown_path(self) -> str:
        """The file's path from where pytest was called, as the next command needs it."""
        here = self.config.invocation_params.dir
        return str(self.path.relative_to(here) if self.path.is_relative_to(here) else self.path)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """What stands in the heading of a failure."""
        return self.path, None, self.name


class _Run:
    """What one process keeps while it runs: the chosen pairs, ledgers and open sides."""

    def __init__(self, config: pytest.Config) -> None:
        self.pairs = _parse_pairs(config.getoption("--treedrift-pair"))
        self._config = config
        self._verifier: Verifier | None = None
        self._ledgers: dict[Path, Ledger] = {}

    def prepare(self, pair: Pair) -> None:
        """Start the workers of a pair, without waiting until they are ready."""
        self._sides().prepare(pair)

    def verdict(self, path: Path, pair: Pair) -> Verdict:
        """The verdict on a file, in the light of the ledger beside its folder."""
        import torch

        from .harness.corpus import Verdict
        from .harness.ledger import Ledger
        from .harness.trace import TraceError

        folder = path.parent.parent / "known"
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # The tensors of a replay are small.
        try:
            if folder not in self._ledgers:
                self._ledgers[folder] = Ledger.read(folder)
            return self._sides().verdict_on_file(path, pair, self._ledgers[folder])
        except TraceError as error:
            return Verdict(kind="ERROR", expected=False, detail=str(error))
        finally:
            torch.set_num_threads(threads)

    def _sides(self) -> Verifier:
        from .harness.corpus import Verifier

        if self._verifier is None:
            self._verifier = Verifier()
            self._config.add_cleanup(self._verifier.close)
        return self._verifier


_RUN = pytest.StashKey[_Run]()


def _parse_pairs(texts: list[str] | None) -> list[Pair]:
    if not texts:
        return []
    from .backends.registry import BackendError
    from .options import UsageError, parse_pairs

    try:
        return list(parse_pairs(texts, "--treedrift-pair"))
    except (UsageError, BackendError) as error:
        raise pytest.UsageError(str(error)) from error
