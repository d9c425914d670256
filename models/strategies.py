"""Hypothesis strategies for configurations, keys, operands and whole cases.

They are made of the swarm's own tables and steps: chance is what Hypothesis decides instead of a
seed. Everything shrinks towards the plain: the smallest pool, the first policy, one token
repeated, the oldest handle. Only this room and the tests know Hypothesis.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property, lru_cache
from typing import Any, NamedTuple, TypeVar

import msgspec
from hypothesis import strategies as st

from treedrift.harness import ops
from treedrift.harness.config import Config

from .case import COMPONENTS, EVICTED, MAX_I64, Case
from .chance import Chance
from .configs import draw_config
from .core_steps import skips_of
from .keys import COLLIDING, NEGATIVE, TOKENS, Keys
from .profiles import Profile
from .recorded import tell_as_recorded
from .swarm import Step, draw_steps

T = TypeVar("T")
Strategy = st.SearchStrategy

GRAIN = 128
"""Hypothesis draws evenly from so many numbers; of more it prefers the small ones."""

LONGEST = 48
"""Tokens of the longest base, so that an example stays within what Hypothesis draws for one."""

STEPS_MAX = 50
"""Steps of one case; each is an op, or a short story of several."""


class DrawnChance(Chance):
    """Chance that Hypothesis decides and can shrink: the first item, the lowest number, no."""

    __slots__ = ("_draw",)

    def __init__(self, draw: st.DrawFn) -> None:
        """Choices drawn within one example."""
        self._draw = draw
        # Weights of rare steps are finer than one grain.
        self.real = lambda: (draw(_GRAINS) + draw(_GRAINS) / GRAIN) / GRAIN

    def below(self, bound: int) -> int:
        """See `Chance`."""
        return self._draw(_below(bound))

    def between(self, low: int, high: int) -> int:
        """See `Chance`."""
        return low + self._draw(_below(high - low + 1))

    def pick(self, items: Sequence[T]) -> T:
        """See `Chance`."""
        return items[self._draw(_below(len(items)))]

    def flip(self, probability: float) -> bool:
        """See `Chance`; shrinks to False."""
        return self._draw(_GRAINS) >= (1 - probability) * GRAIN


@cache
def _below(bound: int) -> Strategy[int]:
    return st.integers(0, bound - 1)


_GRAINS = _below(GRAIN)


@st.composite
def configs(draw: st.DrawFn, profile: Profile, hashable: bool = True) -> Config:
    """Configurations of a profile. Unless `hashable`, nothing that needs hashes is on."""
    return draw_config(DrawnChance(draw), profile, hashable)


class KeySpace(NamedTuple):
    """What the keys of one example are made of, and which features its ops use.

    `shift` is 1 for bigram trees, whose page boundaries lie one token further.
    """

    page: int
    shift: int
    tokens: tuple[int, ...]
    bases: tuple[tuple[int, ...], ...]
    namespaces: tuple[ops.Namespace, ...]
    with_priorities: bool
    with_sessions: bool
    rotating: bool
    recorded: bool


@st.composite
def key_spaces(draw: st.DrawFn, config: Config, negative: bool = False) -> KeySpace:
    """Spaces of colliding keys: few tokens, and bases that repeat a short motif."""
    chance = DrawnChance(draw)
    is_recorded = chance.flip(0.3)
    tokens = chance.pick(NEGATIVE) if negative else chance.weighted(TOKENS)
    most = min(config.row_length * 2 // 3, config.capacity * 3 // 4, LONGEST)
    shift = 1 if config.is_bigram else 0
    length = max(1, min(config.page_size * chance.between(2, 12), most)) + shift
    motifs = draw(_motifs(tokens))
    return KeySpace(
        page=config.page_size,
        shift=shift,
        tokens=tokens,
        bases=tuple(tuple((one * length)[:length]) for one in motifs),
        namespaces=(ops.DEFAULT_NAMESPACE, *draw(_NAMESPACES)),
        with_priorities=config.policy.lower() == "priority" or chance.flip(0.2),
        with_sessions=config.events and chance.flip(0.5),
        rotating=chance.flip(0.2),
        recorded=is_recorded,
    )


@cache
def _motifs(tokens: tuple[int, ...]) -> Strategy[list[list[int]]]:
    motif = st.lists(st.sampled_from(tokens), min_size=1, max_size=6)
    return st.lists(motif, min_size=1, max_size=4)


_NAMESPACES = st.sampled_from(((), *COLLIDING))


class Operands:
    """Strategies for what ops of one example are made of; each is built when first asked for."""

    def __init__(self, config: Config, space: KeySpace, hostile: bool) -> None:
        self.config = config
        self.space = space
        self.hostile = hostile
        self._made: dict[Step, Strategy[list[ops.AnyOp]]] = {}

    @cached_property
    def cuts(self) -> Strategy[int]:
        """Lengths at a page boundary or one beside it."""
        page, shift = self.space.page, self.space.shift
        pages = st.integers(0, len(self.space.bases[0]) // page)
        beside = st.sampled_from((0, 0, 0, 1, -1))
        return st.tuples(pages, beside).map(lambda cut: max(0, cut[0] * page + shift + cut[1]))

    @cached_property
    def tokens(self) -> Strategy[int]:
        """Tokens of the alphabet."""
        return st.sampled_from(self.space.tokens)

    @cached_property
    def some(self) -> Strategy[list[int]]:
        """One token to a page and one."""
        return st.lists(self.tokens, min_size=1, max_size=self.space.page + 1)

    @cached_property
    def keys(self) -> Strategy[list[int]]:
        """A base cut near a page boundary, sometimes extended or changed."""
        changes = st.none() | st.tuples(self.cuts, self.tokens)
        parts = st.tuples(
            st.sampled_from(self.space.bases), self.cuts, st.just([]) | self.some, changes
        )
        return parts.map(lambda four: _key(*four))

    @cached_property
    def prompts(self) -> Strategy[list[int]]:
        """Keys of a token at least: a prompt of nothing is turned away."""
        whole = list(self.space.bases[0])
        return self.keys.map(lambda key: key or whole)

    @cached_property
    def namespaces(self) -> Strategy[ops.Namespace]:
        """The example's namespaces."""
        return st.sampled_from(self.space.namespaces)

    @cached_property
    def priorities(self) -> Strategy[int]:
        """Small ones, and the extremes."""
        small = (0, 1, 2, -1, MAX_I64, -MAX_I64)
        return st.sampled_from(small if self.space.with_priorities else (0,))

    @cached_property
    def sessions(self) -> Strategy[str | None]:
        """Three sessions or none."""
        return st.sampled_from((None, "s", "t", "") if self.space.with_sessions else (None,))

    @cached_property
    def rotations(self) -> Strategy[int | None]:
        """Three rotation bases or none."""
        return st.sampled_from((None, 0, 1, 7) if self.space.rotating else (None,))

    @cached_property
    def amounts(self) -> Strategy[int]:
        """Tokens to evict: around one page, some pages, nothing or everything."""
        page = self.space.page
        exact = st.sampled_from((1, page, 2 * page, 4 * page, 0, self.config.capacity))
        return exact | st.integers(1, 6 * page)

    @cached_property
    def auxiliary(self) -> Strategy[ops.ComponentName]:
        """The tree's components beside Full attention; only where there are some."""
        return st.sampled_from([name for name in COMPONENTS if name in self.config.components])

    @cached_property
    def windows(self) -> Strategy[ops.ComponentName]:
        """The tree's components with a window; only where there are some."""
        return st.sampled_from([name for name in EVICTED if name in self.config.components])

    @cached_property
    def gone(self) -> Strategy[dict[str, int]]:
        """Evicted lengths of an insert, by the fields of the op."""
        fields = {EVICTED[name]: self.cuts for name in EVICTED if name in self.config.components}
        return st.fixed_dictionaries(fields)

    @cached_property
    def states(self) -> Strategy[int]:
        """States to evict: a few, none or all."""
        return st.sampled_from((1, 2, 3, 0, self.config.states))

    @cached_property
    def shortfalls(self) -> Strategy[tuple[int, int, int]]:
        """Tokens, window tokens and states to evict, each only where there are any."""
        none = st.just(0)
        return st.tuples(
            none | self.amounts if len(self.config.components) > 1 else self.amounts,
            none | self.amounts if self.config.has_windows else none,
            none | self.states if self.config.has_states else none,
        )

    @cached_property
    def skips(self) -> Strategy[tuple[ops.ComponentName, ...]]:
        """What a lock leaves out: nothing, most often."""
        return st.sampled_from(((), (), (), *skips_of(self.config.components)))

    @cached_property
    def cows(self) -> Strategy[bool]:
        """Whether a request starts from a cached state."""
        return st.sampled_from((True, True, False) if self.config.has_states else (True,))

    @cached_property
    def counts(self) -> Strategy[int | None]:
        """Tokens of one chunk of a prompt; None for all that is left."""
        return st.none() | st.integers(1, 2 * self.space.page)

    @cached_property
    def lengths(self) -> Strategy[int]:
        """One token to a page and one."""
        return st.integers(1, self.space.page + 1)

    @cached_property
    def labels(self) -> Strategy[dict[str, Any]]:
        """Priority, session, rotation base and copy-on-write, as an arrival names them."""
        fields: dict[str, Strategy[Any]] = {
            "priority": self.priorities,
            "session_id": self.sessions,
            "rotation_base": self.rotations,
            "cow": self.cows,
        }
        return st.fixed_dictionaries(fields)

    def made_by(self, step: Step) -> Strategy[list[ops.AnyOp]]:
        """What a step of the swarm makes when Hypothesis decides."""
        if step not in self._made:
            self._made[step] = _steps_made(self, step)
        return self._made[step]


def _key(
    base: tuple[int, ...], cut: int, tail: list[int], change: tuple[int, int] | None
) -> list[int]:
    key = [*base[:cut], *tail]
    if change is not None and change[0] < len(key):
        key[change[0]] = change[1]
    return key


class DrawnKeys(Keys):
    """The keys of one example, for steps of the swarm."""

    def __init__(self, draw: st.DrawFn, operands: Operands) -> None:
        """Keys drawn from these operands."""
        self._draw = draw
        self._operands = operands
        self.namespaces = list(operands.space.namespaces)

    def token(self) -> int:
        """See `Keys`."""
        return self._draw(self._operands.tokens)

    def some(self, most: int) -> list[int]:
        """See `Keys`."""
        return self._draw(st.lists(self._operands.tokens, min_size=1, max_size=most))

    def key(self) -> list[int]:
        """See `Keys`."""
        return self._draw(self._operands.keys)

    def base(self) -> list[int]:
        """See `Keys`."""
        return list(self._draw(st.sampled_from(self._operands.space.bases)))

    def near_boundary(self, length: int) -> int:
        """See `Keys`."""
        return min(self._draw(self._operands.cuts), length)

    def namespace(self) -> ops.Namespace:
        """See `Keys`."""
        return self._draw(self._operands.namespaces)


class DrawnCase(Case):
    """A trace in the making whose steps draw from an example."""

    __slots__ = ()

    def __init__(self, draw: st.DrawFn, operands: Operands) -> None:
        """An empty trace; its features are those of the operands' key space."""
        space = operands.space
        keys = DrawnKeys(draw, operands)
        chance = DrawnChance(draw)
        self._begin(chance, operands.config, keys, operands.hostile, space.recorded)
        self.rotating = space.rotating
        self.with_priorities = space.with_priorities
        self.with_sessions = space.with_sessions


@st.composite
def _steps_made(draw: st.DrawFn, operands: Operands, step: Step) -> list[ops.AnyOp]:
    case = DrawnCase(draw, operands)
    step(case)
    tell_as_recorded(case, 0)
    return case.ops


@st.composite
def operands_of(draw: st.DrawFn, profile: Profile, hostile: bool = False) -> Operands:
    """A configuration of the profile with a key space: what the ops of one example draw from."""
    negative = hostile and DrawnChance(draw).flip(0.12)
    config = draw_config(DrawnChance(draw), profile, hashable=not negative)
    return _operands(msgspec.json.encode(config), draw(key_spaces(config, negative)), hostile)


@lru_cache(maxsize=256)
def _operands(config: bytes, space: KeySpace, hostile: bool) -> Operands:
    """Operands with all their strategies, which take longer to build than to draw from."""
    return Operands(msgspec.json.decode(config, type=Config), space, hostile)


@st.composite
def cases(
    draw: st.DrawFn, profile: Profile, hostile: bool = False
) -> tuple[Config, list[ops.AnyOp]]:
    """Whole cases of a profile. With `hostile` about one in three breaks the protocol."""
    is_hostile = hostile and DrawnChance(draw).flip(1 / 3)
    operands = draw(operands_of(profile, is_hostile))
    case = DrawnCase(draw, operands)
    wheel = draw_steps(case.chance, profile, operands.config, is_hostile)
    for _ in range(draw(st.integers(1, STEPS_MAX))):
        before = len(case.ops)
        wheel.spin(case.chance)(case)
        tell_as_recorded(case, before)
    return operands.config, case.ops
