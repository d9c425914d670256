"""The Hypothesis engine: cases that Hypothesis makes, for a campaign that runs them itself.

Hypothesis is asked for batches of examples that nothing is tested on, so that generation, running
and shrinking stay apart. Hides its settings and seeds, and that it may not be installed.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

from treedrift.harness.campaign import Case
from treedrift.harness.config import Config
from treedrift.harness.ops import AnyOp

from .profiles import Profile, profile_of, profiles_named

BATCH_CASES = 25
"""Cases of one batch. Each batch starts with the simplest case there is."""

SOURCE = "hypothesis"
"""What the header of a trace from here says about its source."""


class MissingHypothesisError(Exception):
    """Hypothesis is an extra, and it isn't installed here; the message says what to do."""

    def __init__(self) -> None:
        super().__init__(
            'the engine `hypothesis` is not installed: pip install "treedrift[hypothesis]"'
        )


def cases(
    seed: int, profile: str, hostile: bool = False, job: int = 0, jobs: int = 1
) -> Iterator[Case]:
    """Cases without end; the same seed, profile and mode give the same ones.

    `profile` may be a list: each batch has one of them. With `hostile` about one case in three
    breaks the protocol. The jobs of a campaign share its batches out. Raises, before the first
    case, `UnknownProfileError`, and `MissingHypothesisError` where Hypothesis isn't installed.
    """
    if importlib.util.find_spec("hypothesis") is None:
        raise MissingHypothesisError
    return _cases(seed, profiles_named(profile), hostile, job, jobs)


def _cases(
    seed: int, profiles: tuple[Profile, ...], hostile: bool, job: int, jobs: int
) -> Iterator[Case]:
    number = job
    while True:
        first = seed * 1_000_003 + number * BATCH_CASES
        made = _batch(first, profile_of(first, profiles), hostile)
        for index, (config, steps) in enumerate(made):
            yield Case(config, steps, first + index, SOURCE)
        number += jobs


def _batch(seed: int, profile: Profile, hostile: bool) -> list[tuple[Config, list[AnyOp]]]:
    """The examples of one run of Hypothesis, all of whose choices come from the seed."""
    import hypothesis

    from .strategies import cases as strategy

    made: list[tuple[Config, list[AnyOp]]] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=BATCH_CASES,
        phases=[hypothesis.Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(strategy(profile, hostile))
    def collect(case: tuple[Config, list[AnyOp]]) -> None:
        made.append(case)

    collect()
    return made[:BATCH_CASES]
