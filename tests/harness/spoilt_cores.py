"""Python cores that answer one thing wrongly, and what the reference model says about them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from treedrift.backends.contract import (
    CacheInitParams,
    TreeCore,
)
from treedrift.backends.python_core import PythonTreeCore
from treedrift.harness.config import Config
from treedrift.harness.observation import decode
from treedrift.harness.ops import (
    AnyOp,
)
from treedrift.harness.side import LocalSide, Settings

SETTINGS = Settings(tree_every=4)

Fault = Callable[[Any], None]


def side(fault: Fault) -> LocalSide:
    def create(params: CacheInitParams) -> TreeCore:
        core = PythonTreeCore(params)
        fault(core)
        return core

    return LocalSide(create)


def judge(fault: Fault, trace: list[AnyOp], config: Config | None = None) -> list[str]:
    """What the model says about a core, op by op and in the final drain."""
    one = side(fault)
    assert one.open(config or Config(), SETTINGS) is None
    seen = [*one.run(trace).observations, *one.finish().observations]
    found = [finding for data in seen for finding in decode(data).findings]
    return [finding.message for finding in found if finding.oracle == "reference_model"]


def sound(core: Any) -> None:
    """No fault at all."""


def after(owner: Any, name: str, then: Callable[..., Any]) -> None:
    method = getattr(owner, name)
    setattr(owner, name, lambda *args, **more: then(method(*args, **more), *args, **more))


def answers(name: str, **changes: Callable[[Any], Any]) -> Fault:
    """A core whose answers have other fields, each made from the true answer."""

    def spoil(core: Any) -> None:
        def then(result: Any, *_: Any, **__: Any) -> Any:
            fields = {field: change(result) for field, change in changes.items()}
            return msgspec.structs.replace(result, **fields)

        after(core, name, then)

    return spoil


def returns(name: str, change: Callable[[Any], Any]) -> Fault:
    """A core that answers with something made from the true answer."""
    return lambda core: after(core, name, lambda result, *_, **__: change(result))


def insert_result(**changes: Callable[[Any], Any]) -> Fault:
    """A core whose finished inserts tell other things."""

    def spoil(core: Any) -> None:
        def then(step: Any, *_: Any) -> Any:
            for field, change in changes.items():
                if step.result is not None:
                    setattr(step.result, field, change(step.result))
            return step

        after(core, "begin_insert", then)

    return spoil


def insert_actions(edit: Callable[[list[Any]], list[Any]]) -> Fault:
    """A core whose inserts ask for other actions."""

    def spoil(core: Any) -> None:
        def then(step: Any, *_: Any) -> Any:
            step.actions = edit(step.actions)
            return step

        after(core, "begin_insert", then)

    return spoil
