"""Random cases of the harness, run through a core with a shadow and without."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tests.treedrift.inside.contract_methods import ContractMethods
from treedrift.backends.contract import CacheInitParams, TreeCore
from treedrift.backends.python_core import PythonTreeCore
from treedrift.harness.config import Config
from treedrift.harness.ops import AnyOp
from treedrift.harness.side import LocalSide, Settings
from treedrift.inside.reporting import Reporter, Status
from treedrift.inside.shadow import History, shadowed
from treedrift.models.profiles import profile_named
from treedrift.models.swarm import generate_case

Make = Callable[[CacheInitParams], TreeCore]
PAIR = ("python", "rust")


def cases(profile: str, count: int, hostile: bool = True) -> Iterator[tuple[Config, list[AnyOp]]]:
    """Cases of fixed seeds, the first and each third after it a hostile one."""
    for seed in range(count):
        yield generate_case(seed, profile_named(profile), hostile and seed % 3 == 0)


def observations(make: Make, config: Config, ops: list[AnyOp]) -> list[bytes] | None:
    """All that a case shows on a core; None if the core refuses the configuration."""
    side = LocalSide(make)
    if side.open(config, Settings(model=False)) is not None:
        return None
    return side.run(ops).observations + side.finish().observations


class Shadowing:
    """Makes cores with a shadow, and keeps the status of each."""

    def __init__(
        self,
        make_second: Make,
        make_first: Make = PythonTreeCore,
        make_reporter: Callable[[], Reporter] = lambda: Reporter(PAIR),
        make_history: Callable[[CacheInitParams], History] | None = None,
        methods: Any = None,
        **settings: Any,
    ) -> None:
        self.statuses: list[Status] = []
        self._make_first = make_first
        self._make_second = make_second
        self._make_reporter = make_reporter
        self._make_history = make_history
        self._methods = methods or ContractMethods()
        self._settings = settings

    @property
    def status(self) -> Status:
        """That of the last core."""
        return self.statuses[-1]

    def __call__(self, params: CacheInitParams) -> TreeCore:
        reporter = self._make_reporter()
        self.statuses.append(reporter.status)
        make_history = self._make_history
        core: TreeCore = shadowed(
            self._make_first(params),
            self._methods,
            lambda: self._make_second(params),
            params.tree_components,
            reporter,
            None if make_history is None else lambda: make_history(params),
            **self._settings,
        )
        return core


class Panic(BaseException):
    """What a native library raises past every `except Exception`."""


def second(**methods: Any) -> Make:
    """A sound core, but for methods that answer with what they are given or raise it."""

    def make(params: CacheInitParams) -> Any:
        core: Any = PythonTreeCore(params)
        for name, answer in methods.items():
            setattr(core, name, lambda *args, answer=answer, **kwargs: give(answer))
        return core

    def give(answer: Any) -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    return make
