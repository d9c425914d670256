"""The two functions that a test needs: do two cores agree on these ops, and can they run here.

They are public, as `treedrift.assert_agree` and `treedrift.why_missing`.
"""

from __future__ import annotations

from collections.abc import Sequence

from .backends.registry import BackendError, BackendName, UnknownBackendError, local_backend
from .backends.sglang.environments import EnvironmentsError, MissingEnvironmentError
from .harness.config import Config
from .harness.explain import explain
from .harness.lockstep import Pair
from .harness.opening import open_lockstep
from .harness.ops import AnyOp
from .harness.trace import new_trace, validate
from .reports.explained import text_explanation


def assert_agree(pair: Pair, config: Config, ops: Sequence[AnyOp]) -> None:
    """Run ops on two cores, named as on the command line, and compare everything after every op.

    Raises `AssertionError` that explains where they part. Raises `TraceError` for ops that no
    trace can hold, and the errors of a core that is unknown or can't run here.
    """
    __tracebackhide__ = True  # What a reader of a failed test wants is the message.
    trace = new_trace(config, ops)
    validate(trace, "the ops of a test")
    lockstep = open_lockstep([pair])
    try:
        explanation = explain(trace, lockstep, pair)
    finally:
        lockstep.close()
    if explanation is not None:
        raise AssertionError(f"two cores that should agree\n{text_explanation(explanation)}")


def why_missing(*cores: str) -> str | None:
    """Why one of these cores can't run here, as the reason of a skipped test; None if all can.

    Raises `UnknownBackendError` for a name that is no core's: that is a mistake, not a reason.
    """
    for name in cores:
        try:
            parsed = BackendName.parse(name)
            if parsed.place() is None:
                local_backend(parsed.name)
        except UnknownBackendError:
            raise
        except (BackendError, MissingEnvironmentError, EnvironmentsError) as error:
            return f"{name}: {error}"
    return None
