"""Three ways to shrink one failing trace, with the same question put to each: does it still fail?

- *ours*: `treedrift.harness.minimize`.
- *hypothesis*: its own shrinker. It shrinks the choices that made an example, so the trace is
  described by choices: a list of ops, each one of the trace's with its numbers and the length of
  its tokens, and for every setting whether it stays. The choices that give the trace as it is go
  into an example database, `find` takes them from there and shrinks them.
- *picire*: plain ddmin over the list of ops, operands and configuration untouched.

All three are stopped when the budget is spent and are then judged by the best they had.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module, metadata
from time import monotonic
from types import ModuleType
from typing import Any

import msgspec
from hypothesis import Phase, find, settings
from hypothesis import strategies as st
from hypothesis.database import InMemoryExampleDatabase, choices_to_bytes

from treedrift.harness.config import Config
from treedrift.harness.lockstep import Lockstep, Pair
from treedrift.harness.minimize import minimize
from treedrift.harness.minimize.draft import Draft
from treedrift.harness.minimize.trial import replayed
from treedrift.harness.trace import Trace

KEY = b"trace"
EXAMPLES_MAX = 1_000_000


class Shrunk(msgspec.Struct, kw_only=True):
    """What one way made of one trace. `is_minimal`: tried and found so, whatever the way says."""

    way: str
    ops: int
    tokens: int
    seconds: float
    trials: int
    is_minimal: bool


class Failing:
    """A trace that fails, and the question whether another one fails alike."""

    def __init__(self, trace: Trace, pair: Pair, lockstep: Lockstep, signature: str) -> None:
        self.trace = trace
        self.pair = pair
        self.lockstep = lockstep
        self.signature = signature

    def shows(self, draft: Draft) -> bool:
        """Whether a replay shows the same kind."""
        found = replayed(self.lockstep, self.pair, draft)
        return any(one.signature == self.signature for one in found)

    def judged(self, way: str, draft: Draft, seconds: float, trials: int) -> Shrunk:
        """A result, measured: every single removal is tried here, out of the budget."""
        is_minimal = self.shows(draft) and not any(
            self.shows(Draft(draft.config, draft.ops[:number] + draft.ops[number + 1 :]))
            for number in range(len(draft.ops))
        )
        return Shrunk(
            way=way,
            ops=len(draft.ops),
            tokens=sum(len(getattr(op, "tokens", ())) for op in draft.ops),
            seconds=seconds,
            trials=trials,
            is_minimal=is_minimal,
        )


class TimeIsUp(BaseException):
    """The budget is spent. No ordinary exception, because libraries take those for failures."""


class Asked:
    """Answers whether a draft fails, and keeps the best one that did until the time is up."""

    def __init__(self, failing: Failing, seconds: float) -> None:
        self._failing = failing
        self._started = monotonic()
        self._seconds = seconds
        self._known: dict[str, bool] = {}
        self.best = Draft(failing.trace.header.config, list(failing.trace.ops))

    @property
    def trials(self) -> int:
        """How many different drafts were replayed."""
        return len(self._known)

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return monotonic() - self._started

    def __call__(self, draft: Draft) -> bool:
        """Whether it fails alike. Raises `TimeIsUp`."""
        digest = draft.digest()
        if digest not in self._known:
            if self.seconds > self._seconds:
                raise TimeIsUp
            self._known[digest] = self._failing.shows(draft)
            if self._known[digest] and len(draft.ops) <= len(self.best.ops):
                self.best = draft
        return self._known[digest]


def ours(failing: Failing, seconds: float) -> Shrunk:
    """Our minimizer, in one process."""
    made = minimize(
        failing.trace,
        failing.pair,
        signature=failing.signature,
        budget_seconds=seconds,
        lockstep=failing.lockstep,
    )
    draft = Draft(made.trace.header.config, made.trace.ops)
    return failing.judged("ours", draft, made.seconds, made.trials)


# --- Hypothesis -----------------------------------------------------------------------------

Flag = Callable[[], bool]
Number = Callable[[int, int], int]


def hypothesis(failing: Failing, seconds: float) -> Shrunk:
    """Hypothesis' shrinker, started from the choices that give the trace."""
    asked = Asked(failing, seconds)
    database = InMemoryExampleDatabase()
    # What is saved under the key itself counts as shrunk already.
    database.save(KEY + b".secondary", choices_to_bytes(choices_of(asked.best)))
    profile = settings(
        database=database,
        phases=[Phase.reuse, Phase.shrink],
        deadline=None,
        max_examples=EXAMPLES_MAX,
    )
    with suppress(TimeIsUp):
        asked.best = find(drafts_like(asked.best), asked, settings=profile, database_key=KEY)
    return failing.judged("hypothesis", asked.best, asked.seconds, asked.trials)


def drafts_like(trace: Draft) -> st.SearchStrategy[Draft]:
    """Settings and ops of the trace, in any number and order, each as it is or with less."""

    @st.composite
    def op(draw: Any) -> Any:
        chosen = trace.ops[draw(st.integers(0, len(trace.ops) - 1))]
        return _lowered(chosen, lambda: draw(st.booleans()), _number(draw))

    @st.composite
    def config(draw: Any) -> Config:
        return _settings(trace.config, lambda: draw(st.booleans()), _number(draw))

    return st.builds(Draft, config(), st.lists(op(), max_size=2 * len(trace.ops)))


def _number(draw: Any) -> Number:
    return lambda least, most: int(draw(st.integers(least, most)))


def choices_of(trace: Draft) -> list[Any]:
    """The choices with which `drafts_like` gives the trace itself."""
    choices: list[Any] = []

    def flag() -> bool:
        choices.append(True)
        return True

    def number(least: int, most: int) -> int:
        choices.append(most)
        return most

    _settings(trace.config, flag, number)
    for index, op in enumerate(trace.ops):
        choices += [True, index]  # The list goes on, with this op.
        _lowered(op, flag, number)
    return [*choices, False]


def _settings(config: Config, flag: Flag, number: Number) -> Config:
    default, new = Config(), {}
    for field in Config.__struct_fields__:
        value = getattr(config, field)
        if field in ("capacity", "rows", "row_length"):
            new[field] = number(1, value)
        elif value != getattr(default, field):
            new[field] = value if flag() else getattr(default, field)
    return msgspec.structs.replace(config, **new)


def _lowered(op: Any, flag: Flag, number: Number) -> Any:
    new: dict[str, Any] = {}
    for field in msgspec.structs.fields(type(op)):
        value = getattr(op, field.name)
        if field.name == "tokens":
            new["tokens"] = value[: number(0, len(value))] if value else []
        elif field.default is not msgspec.NODEFAULT and value != field.default:
            if not flag():
                new[field.name] = field.default
            elif type(value) is int and value > 0:
                new[field.name] = number(0, value)
        elif type(value) is int and value > 0:
            new[field.name] = number(0, value)
        elif isinstance(value, str) and value.startswith(("live:", "stale:", "request:")):
            kind, _, position = value.partition(":")
            new[field.name] = f"{kind}:{number(0, int(position))}"
    return msgspec.structs.replace(op, **new) if new else op


# --- Picire ---------------------------------------------------------------------------------


def ddmin(failing: Failing, seconds: float) -> Shrunk:
    """Picire's ddmin over the ops."""
    picire = _picire()
    asked = Asked(failing, seconds)
    config, steps = failing.trace.header.config, failing.trace.ops
    outcome = picire.Outcome

    def fails(numbers: list[int], _: object) -> Any:
        draft = Draft(config, [steps[number] for number in numbers])
        return outcome.FAIL if asked(draft) else outcome.PASS

    with suppress(TimeIsUp):
        left = picire.DD(fails)(list(range(len(steps))))
        asked.best = Draft(config, [steps[number] for number in left])
    return failing.judged("picire", asked.best, asked.seconds, asked.trials)


def _picire() -> ModuleType:
    """Picire. It asks `pkg_resources` for its version, which setuptools no longer brings."""
    if "pkg_resources" in sys.modules:
        return import_module("picire")
    substitute: Any = ModuleType("pkg_resources")
    substitute.get_distribution = metadata.distribution
    sys.modules["pkg_resources"] = substitute
    try:
        return import_module("picire")
    finally:
        del sys.modules["pkg_resources"]  # Others look at the real one, or see that it is missing.


WAYS: dict[str, Callable[[Failing, float], Shrunk]] = {
    "ours": ours,
    "hypothesis": hypothesis,
    "picire": ddmin,
}
"""Every way by its name."""
