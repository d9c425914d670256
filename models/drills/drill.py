"""What a drill is, and the tools that spoil one core or one cache.

A drill spoils a single fresh core, or the cache on top of it: attributes of that object and of its
parts are replaced, never a class or a module, because a sound one lives in the same process and
must stay sound. A drill is known by its name alone, so it is found again in any process.
Hides how a method of one object is replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from treedrift.backends.contract import ComponentType
from treedrift.backends.python_core.window import Window

Mutation = Callable[[Any], None]
"""Spoils a fresh `PythonTreeCore` or `Cache`, whose parts are private; so it is untyped here."""

Target = Literal["core", "cache"]


class Drill(msgspec.Struct, frozen=True, kw_only=True):
    """One semantic mutant of the Python core, or of the cache on top of it (`target`).

    `about` says in a sentence what it does wrong, `rule` which rule that breaks, `stands_for` which
    kind of slip it stands for, `case` which real bug of the list of cases, if any. A hunt takes its
    cases from `profile`.
    """

    name: str
    about: str
    rule: str
    stands_for: str
    mutate: Mutation
    case: str | None = None
    profile: str = "full"
    target: Target = "core"


class Theme:
    """The drills of one file, in order. Called, it is the decorator that adds one."""

    def __init__(self, profile: str = "full", target: Target = "core") -> None:
        """Start empty. Drills that name no profile of their own are hunted with this one."""
        self.drills: list[Drill] = []
        self._profile = profile
        self._target = target

    def __call__(
        self,
        rule: str,
        stands_for: str,
        case: str | None = None,
        *,
        profile: str | None = None,
    ) -> Callable[[Mutation], Mutation]:
        """Make a function a drill: its name and its docstring are those of the drill."""

        def add(mutate: Mutation) -> Mutation:
            name = mutate.__name__.replace("_", "-")
            about = (mutate.__doc__ or "").strip()
            self.drills.append(
                Drill(
                    name=name,
                    about=about,
                    rule=rule,
                    stands_for=stands_for,
                    mutate=mutate,
                    case=case,
                    profile=profile or self._profile,
                    target=self._target,
                )
            )
            return mutate

        return add


def after(owner: Any, name: str, then: Callable[..., Any]) -> None:
    """Give a method another answer: what `then` makes of the true one and the arguments."""
    method = getattr(owner, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        return then(method(*args, **kwargs), *args, **kwargs)

    setattr(owner, name, call)


def before(owner: Any, name: str, first: Callable[..., Any]) -> None:
    """Do something with a method's arguments before it runs."""
    method = getattr(owner, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        first(*args, **kwargs)
        return method(*args, **kwargs)

    setattr(owner, name, call)


def during(owner: Any, name: str, part: Any, field: str, change: Callable[[Any], Any]) -> None:
    """Give a field of `part` another value while a method of `owner` runs."""
    method = getattr(owner, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        kept = getattr(part, field)
        setattr(part, field, change(kept))
        try:
            return method(*args, **kwargs)
        finally:
            setattr(part, field, kept)

    setattr(owner, name, call)


def override(owner: Any, **members: Any) -> None:
    """Give one object its own subclass with these members, where it takes no attributes."""
    kind = type(owner)
    owner.__class__ = type(kind.__name__, (kind,), {"__slots__": (), **members})


def on_insert(core: Any, spoil: Mutation) -> None:
    """Spoil each insert walk of a core before its first step."""
    step = core._step

    def call(walk: Any) -> Any:
        if "is_spoilt" not in vars(walk):
            walk.is_spoilt = True
            spoil(walk)
        return step(walk)

    core._step = call


def on_request(core: Any, change: Mutation) -> None:
    """Change the converted arguments of each insert."""
    on_insert(core, lambda walk: change(walk._request))


def on_split(core: Any, then: Callable[[Any, Any], None]) -> None:
    """Do something to both halves, the upper one first, after each split."""

    def spoil(upper: Any, lower: Any, length: int) -> Any:
        then(upper, lower)
        return upper

    after(core._tree, "split", spoil)


def on_walk(core: Any, spoil: Mutation) -> None:
    """Spoil each device walk when it is opened."""
    full = core._tree.full
    open_walk = full.open_walk

    def call(count: int) -> None:
        open_walk(count)
        spoil(full._walk)

    full.open_walk = call


def edit_actions(core: Any, edit: Callable[[list[Any]], list[Any]]) -> None:
    """Edit the actions that every step of an insert hands out."""

    def then(step: Any, *_: Any) -> Any:
        step.actions = edit(step.actions)
        return step

    after(core, "begin_insert", then)
    after(core, "resume_insert", then)


# --- Windows and states -------------------------------------------------------------------


def on_windows(core: Any, spoil: Mutation) -> None:
    """Spoil each sliding-window component of a core; nothing in a core without one."""
    for component in core._tree.auxiliary:
        if isinstance(component, Window):
            spoil(component)


def on_first_window(core: Any, spoil: Mutation) -> None:
    """Spoil the window that takes slots over for FULL too."""
    on_component(core, ComponentType.SWA, spoil)


def on_states(core: Any, spoil: Mutation) -> None:
    """Spoil the Mamba component of a core; nothing in a core without one."""
    on_component(core, ComponentType.MAMBA, spoil)


def on_auxiliary(core: Any, spoil: Mutation) -> None:
    """Spoil each component of a core beside FULL."""
    for component in core._tree.auxiliary:
        spoil(component)


def on_component(core: Any, component_type: ComponentType, spoil: Mutation) -> None:
    """Spoil one component of a core; nothing in a core without it."""
    for component in core._tree.auxiliary:
        if component.component_type is component_type:
            spoil(component)


def on_recency(component: Any, **members: Any) -> None:
    """Give the list of a component other methods, now and after every reset."""
    override(component.recency, **members)
    after(component, "reset", lambda _: override(component.recency, **members))
