"""What the rules of the state machine share: the case that runs, and what it has shown so far.

A rule becomes ops, which are appended to the trace and run at once on both sides. Bundles hold
identities (the third request, the handle with that number); here they become the references that
a trace can hold. Hides the session, and how a divergence becomes a failure of its own kind.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar, TypeVar

from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from treedrift.harness import ops
from treedrift.harness.compare import SIZE_NAMES, Divergence, decisive
from treedrift.harness.config import Config
from treedrift.harness.lockstep import Lockstep, Session
from treedrift.harness.opening import replay_settings
from treedrift.harness.side import KEEPS_WALKS

from ..profiles import Profile
from ..strategies import Operands, Strategy, operands_of
from ..swarm import Step, hostile_steps_of, steps_of

Rule = TypeVar("Rule", bound=Callable[..., Any])
Listener = Callable[[Config, list[ops.AnyOp]], None]
"""Hears the configuration and the trace of every example."""

Handle = int
"""A handle by its number in the observations, which is the same on both sides."""

HANDLES: Bundle[Handle] = Bundle("handles")

_ONGOING = SIZE_NAMES.index("has_ongoing_insert")
_REQUESTS = SIZE_NAMES.index("requests")

FILLERS = ("arrive", "insert")
"""Steps that put something into the tree whatever was there before."""

RARE_WEIGHT = 0.3
"""Steps of the swarm up to this weight are off, except for some that an example draws."""

RULED: set[str] = set()
"""Steps of the swarm that some rule stands for; `on` fills it."""

CALM = (ops.CoreMatch, ops.Ask, ops.HostEvict, ops.Touch, ops.DrainEvents)
WALKING = (ops.WalkStart, ops.WalkNext, ops.WalkEnd, ops.EvictLeaf, ops.DropSubtree)
"""Ops that may come while a walk of the Full component is open, if they are of that walk.

Others change the tree under it, which is hostile. Walks of other components bear all but locks.
"""


class DivergedError(AssertionError):
    """The sides parted, or an oracle objects. Carries the trace that led there."""

    def __init__(
        self, divergence: Divergence, config: Config, trace: list[ops.AnyOp], profile: str
    ) -> None:
        super().__init__(f"{divergence.kind} at {divergence.op_kind}: {divergence.where}")
        self.divergence = divergence
        self.config = config
        self.trace = trace
        self.profile = profile


@cache
def _failure_of(signature: str) -> type[DivergedError]:
    """An error class per signature, so that Hypothesis never shrinks one fault into another."""
    return type("DivergedError", (DivergedError,), {"__doc__": f"Diverged with {signature}."})


class TreeMachine(RuleBasedStateMachine):
    """One case of a pair, driven by Hypothesis. Subclasses bring rules and set the first four.

    `walks` are the components whose device walks should be open.
    """

    lockstep: ClassVar[Lockstep]
    profile: ClassVar[Profile]
    may_be_hostile: ClassVar[bool]
    listen: ClassVar[Listener]

    def __init__(self) -> None:
        super().__init__()
        self.trace: list[ops.AnyOp] = []
        self.found: list[Divergence] = []
        self.live: list[Handle] = []
        self._given: set[Handle] = set()
        self._dead: list[Handle] = []
        self.walks: set[ops.ComponentName] = set()
        self.session: Session | None = None

    # --- Beginning and end ----------------------------------------------------------------

    @initialize(setup=st.deferred(lambda: _setups_of_machine()))
    def configure(self, setup: tuple[Operands, frozenset[str]]) -> None:
        """Open both sides; every later rule draws from these operands, if it is switched on."""
        self.operands, self.switched_on = setup
        self.config = self.operands.config
        watched = replay_settings(self.lockstep.pairs, self.config)
        self.session = self.lockstep.session(self.config, watched)
        assume(self.session.refused is None)
        self.found = self.session.step([])

    def teardown(self) -> None:
        """Run the final drain, unless something was found before."""
        if self.session is None:
            return
        if not self.found:
            self.found = self.session.finish()
            self.the_sides_agree()
        type(self).listen(self.config, self.trace)

    @invariant(check_during_init=True)
    def the_sides_agree(self) -> None:
        """No observation differs, and no oracle of either side objects."""
        found = decisive(self.found)
        if found is not None:
            raise _failure_of(found.signature)(found, self.config, self.trace, self.profile.name)

    @rule()
    def a_pause(self) -> None:
        """Nothing: what Hypothesis makes of a step that a smaller example can do without.

        Some steps decide things for later ones, so that it can't take them away. This rule is
        the first by Hypothesis' order, so that they come to this and leave nothing in a trace.
        """

    # --- Running --------------------------------------------------------------------------

    def run(self, *steps: ops.AnyOp) -> None:
        """Append ops to the trace and run them on both sides.

        A walk that is open is closed first where the ops would break the protocol of walks.
        """
        assert self.session is not None
        batch = list(steps)
        if "full" in self.walks and not self.operands.hostile and not all(map(_is_calm, batch)):
            batch.insert(0, ops.WalkEnd())
        self.trace += batch
        self.found = self.session.step(batch)
        self._note(batch)

    def _note(self, batch: list[ops.AnyOp]) -> None:
        for op in batch:
            if isinstance(op, ops.WalkStart):
                self.walks.add(op.component)
            elif isinstance(op, ops.WalkEnd):
                self.walks.discard(op.component)
            elif isinstance(op, ops.Reset) or type(op) not in KEEPS_WALKS:
                self.walks.clear()
            elif isinstance(op, ops.Lock) and not (op.host or op.force):
                self.walks.intersection_update({"full"})
        seen = self._seen
        if seen is not None and seen.tree is not None:
            nodes, told = seen.tree["nodes"], len(seen.tree["order"])
            now = [node[0] for node in nodes[:told]]
            self._dead += [handle for handle in self.live if handle not in now]
            self.live = now

    @property
    def _seen(self) -> Any:
        return self.session.seen if self.session is not None else None

    @property
    def requests(self) -> int:
        """How many requests run."""
        return int(self._seen.sizes[_REQUESTS]) if self._seen and self._seen.sizes else 0

    @property
    def inserting(self) -> bool:
        """Whether an insert is suspended."""
        return bool(self._seen and self._seen.sizes and self._seen.sizes[_ONGOING])

    def called(self, method: str) -> bool:
        """Whether the last op called a method of the core, and it went well."""
        calls = self._seen.calls if self._seen else []
        return any(call[0] == method and call[2][0] == "ok" for call in calls)

    def forget_references(self) -> None:
        """What rules of other levels hold is dead: the tree was emptied."""

    # --- Handles --------------------------------------------------------------------------

    def new_handles(self) -> MultipleResults[Handle]:
        """Handles that ops were told and that no rule has put into the bundle yet."""
        new = [handle for handle in self.live if handle not in self._given]
        self._given.update(new)
        return multiple(*new)

    def ref(self, node: Handle | ops.NodeRef) -> ops.NodeRef:
        """How a trace names a handle now; text is a reference already."""
        if isinstance(node, str):
            return node
        if node in self.live:
            return f"live:{self.live.index(node)}"
        return f"stale:{self._dead.index(node) if node in self._dead else 0}"


def _is_calm(op: ops.AnyOp) -> bool:
    """Whether an op may come while a walk of the Full component is open."""
    is_of_it = getattr(op, "component", "full") == "full"
    return isinstance(op, CALM) or (isinstance(op, WALKING) and is_of_it)


def _setups_of_machine() -> Strategy[tuple[Operands, frozenset[str]]]:
    def setup(machine: TreeMachine) -> Strategy[tuple[Operands, frozenset[str]]]:
        return setups(machine.profile, machine.may_be_hostile)

    return st.runner().flatmap(setup)


@st.composite
def setups(
    draw: st.DrawFn, profile: Profile, may_be_hostile: bool
) -> tuple[Operands, frozenset[str]]:
    """Operands, and the steps that are switched on: swarm selection, within the profile."""
    hostile = may_be_hostile and "core" in profile.levels and draw(st.booleans())
    operands = draw(operands_of(profile, hostile))
    weights = {name: weight for name, (weight, _) in steps_of(profile, operands.config).items()}
    named = [name for name in sorted(RULED) if weights.get(name)]
    common = [name for name in named if weights[name] > RARE_WEIGHT]
    rare = [name for name in named if weights[name] <= RARE_WEIGHT]
    fillers = set(FILLERS) & set(common)
    on = set(common).difference(draw(_some_of(tuple(common)))).union(draw(_some_of(tuple(rare))))
    if not on & fillers:  # A tree that nothing is put into shows nothing.
        on |= fillers
    return operands, frozenset(on | (set(hostile_steps_of(operands.config)) if hostile else set()))


@cache
def _some_of(names: tuple[str, ...]) -> Strategy[list[str]]:
    return st.lists(st.sampled_from(names), max_size=8) if names else st.just([])


# --- Parts of rules -------------------------------------------------------------------------


def on(step: str) -> Callable[[Rule], Rule]:
    """A rule that exists only in examples where the step of that name is switched on."""

    RULED.add(step)

    def is_on(machine: TreeMachine) -> bool:
        return step in machine.switched_on

    return precondition(is_on)


def of(name: str) -> Strategy[Any]:
    """An operand of the example at hand, by its name in `Operands`."""
    return st.runner().flatmap(lambda machine: getattr(machine.operands, name))


def made_by(step: Step) -> Strategy[list[ops.AnyOp]]:
    """The ops that a step of the swarm makes for the example at hand."""
    return st.runner().flatmap(lambda machine: machine.operands.made_by(step))


NODES: Strategy[Handle | ops.NodeRef] = HANDLES | st.sampled_from(
    ("root", "request:0", "request:1", "answer:0", "answer:1")
)
"""Mostly a handle that an earlier rule was told."""
