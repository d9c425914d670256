"""A second core that follows the first one of a running server, call by call.

Each call on the first is made on the second too, with copies of the same arguments, and all that
the two answered is compared as the harness does. The server only ever gets what the first
answered. Hides how handles and receipts of the first are spelled for the second.
"""

from __future__ import annotations

import copy
import inspect
from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import cache
from itertools import takewhile
from typing import Any, NoReturn, Protocol

import msgspec
import torch

from ..backends.contract import (
    ComponentType,
    CorePoisonedError,
    DecLockRefParams,
    IncLockRefResult,
    NodeId,
    RadixKey,
    TreeCore,
    UnsupportedError,
)
from ..harness.canonical import (
    ATOMS,
    HANDLE_FIELDS,
    HANDLE_LIST_FIELDS,
    RECEIPT_FIELDS,
    Names,
    UnknownNameError,
)
from ..harness.compare import (
    SIZE_NAMES,
    Difference,
    Divergence,
    compare_calls,
    compare_sizes,
    first_difference,
)
from ..harness.ledger import core_of
from ..harness.opening import UNORDERED_CORES
from ..harness.ops import kind_of
from ..harness.recorder import (
    BUFFERS,
    PROPERTIES,
    arguments_of,
    ending_of,
    parameters_of,
)
from ..harness.trace import Trace
from ..harness.transcript import READS, SILENT
from ..harness.transcript.call import Call
from .reporting import Reporter, place_of, shown
from .watched import CLEARED, Crossing, WatchEndedError, watch

UNCOMPARED = frozenset({"node_by_id"})
"""What the second is not asked: a node object means something to its own core alone (PLUG-1)."""

TRANSFERS = frozenset({"ongoing_write_through", "ongoing_load_back"})
"""Parameters that hold pairs of an operation and a handle."""

SIZES = {
    ComponentType.FULL: ("full_evictable_size", "full_protected_size"),
    ComponentType.SWA: ("swa_evictable_size", "swa_protected_size"),
    ComponentType.MAMBA: ("mamba_evictable_size", "mamba_protected_size"),
}
"""How sizes are asked for without naming a component, whose type differs between releases."""

TOTAL_EVERY = 256
"""How many comparisons of sizes go without the total, for which some cores walk their tree."""

HANDLES_MIN = 2**17
"""How many handles are kept before those of nodes that are gone are given up."""

HANDLES_AT_ONCE = 8
"""How many handles are looked at after one call, so that no call of a server takes long."""

RECEIPTS_MIN = 2**17
"""How many receipts are kept before those that were released are given up."""

_TAKING = frozenset({"inc_lock_ref", "inc_host_lock_ref"})
_RELEASING = frozenset({"dec_lock_ref", "dec_host_lock_ref"})

_EVICTABLE = {
    ComponentType.FULL: "evictable",
    ComponentType.SWA: "swa_evictable",
    ComponentType.AUXILIARY_SWA: "aux_swa_evictable",
    ComponentType.MAMBA: "mamba_evictable",
}


class History(Protocol):
    """What keeps the calls of a run: `harness.transcript.history.History`."""

    @property
    def lacks_last(self) -> bool:
        """Whether no op could say the last call."""

    def add(self, call: Call) -> None:
        """Keep a call, which nobody changes any more."""

    def trace(self, **header: Any) -> Trace:
        """The calls so far as a trace, with further fields of its header."""


class ShadowDivergenceError(WatchEndedError):
    """The two cores have parted, as was reported. Raised out of the call in strict mode."""

    def __init__(self, divergence: Divergence, report: str) -> None:
        super().__init__(report)
        self.divergence = divergence


class Shadow:
    """The watcher that drives the second core. `first` is asked for its sizes alone.

    `components` are those of the tree, `pair` names both cores as the header of a trace does.
    Sizes are compared after every `sizes_every`-th call that may change them. At the first hard
    difference it reports and raises `ShadowDivergenceError`; what else it raises is a fault of its
    own, and so is a second core that lacks what the first has.
    """

    def __init__(
        self,
        first: Any,
        second: TreeCore,
        components: Sequence[ComponentType],
        reporter: Reporter,
        history: History | None = None,
        sizes_every: int = 1,
    ) -> None:
        self._first = first
        self._second = second
        self._readings = readings_of(components)
        self._reporter = reporter
        self._status = reporter.status
        self._history = history
        self._sizes_every = sizes_every
        self._ordered = not {core_of(name) for name in self._status.pair} & UNORDERED_CORES
        self._names, self._second_names = Names(), Names()
        # Nobody asks here which handles an op was told, and a server runs for long.
        self._names.is_looking = self._second_names.is_looking = True
        self._soft: set[str] = set()
        self._changes = 0
        self._doubtful: list[int] = []
        self._forget_handles_at = HANDLES_MIN
        self._held = Counter[int]()
        self._forget_receipts_at = RECEIPTS_MIN

    def begins(self, call: Call) -> None:
        """Nothing yet: the first core goes first, for it may refuse."""

    def ends(self, call: Call) -> None:
        """Make the call on the second core, and compare."""
        self._status.calls += 1
        if self._history is not None:
            self._history.add(call)
        if call.method in UNCOMPARED:
            return
        if not self._is_same_figure(call):
            self._judge(call, self._compare(call))
        self._status.compared += 1
        if call.method in READS:
            return
        self._changes += 1
        self._forget_handles()
        self._forget_receipts(call)
        is_dead = isinstance(call.error, CorePoisonedError)
        if self._changes % self._sizes_every == 0 and not is_dead:
            self._judge(call, self._compare_sizes())

    # --- Forgetting -----------------------------------------------------------------------

    def _forget_handles(self) -> None:
        """Give up the handles of nodes that are gone, some at a time."""
        known = self._second_names.handles()
        if not self._doubtful:
            if len(known) < self._forget_handles_at:
                return
            self._doubtful = list(known)
        looked_at = self._doubtful[-HANDLES_AT_ONCE:]
        del self._doubtful[-HANDLES_AT_ONCE:]
        gone = [number for number in looked_at if self._is_gone(known[number])]
        self._names.forget_handles(gone)
        self._second_names.forget_handles(gone)
        if not self._doubtful:
            self._forget_handles_at = max(HANDLES_MIN, 2 * len(known))

    def _is_gone(self, node: NodeId) -> bool:
        return isinstance(_answer(lambda: self._second.is_root(node)), KeyError)

    def _forget_receipts(self, call: Call) -> None:
        """Count who holds a receipt, and give up those that nobody holds any more.

        Several locks that end at one boundary have one id.
        """
        if call.error is not None:
            return
        if call.method in _TAKING:
            self._held.update(_ids_of(call.result))
        elif call.method in _RELEASING:
            for uuid in _ids_of(call.arguments["params"]):
                # Not below 0: what a reset has made dead is released once more.
                self._held[uuid] = max(0, self._held[uuid] - 1)
        elif call.method == "reset":
            self._held.clear()
        known = self._names.receipts()
        if len(known) < self._forget_receipts_at:
            return
        released = [number for number, uuid in known.items() if not self._held[uuid]]
        self._names.forget_receipts(released)
        self._second_names.forget_receipts(released)
        self._held = +self._held
        self._forget_receipts_at = max(RECEIPTS_MIN, 2 * len(known))

    # --- Comparing ------------------------------------------------------------------------

    def _is_same_figure(self, call: Call) -> bool:
        """Whether a figure, which is what a cache asks for most, needs no closer look."""
        if call.method not in SILENT or call.arguments or call.error is not None:
            return False
        answer = _answer(lambda: _called(self._second, call, {}))
        return type(answer) in ATOMS and type(answer) is type(call.result) and answer == call.result

    def _compare(self, call: Call) -> Difference | None:
        try:
            given = {
                name: translated(self._names, self._second_names, name, item)
                for name, item in call.arguments.items()
            }
        except UnknownNameError:
            if isinstance(call.error, KeyError):
                return None  # No side knows the node.
            raise
        theirs = Call(call.method, given)
        asked = arguments_of(self._names, call)
        # For the numbers: the arguments themselves are translations of each other.
        arguments_of(self._second_names, theirs)
        _make(self._second, theirs)
        lacks = isinstance(theirs.error, UnsupportedError)
        if lacks and not isinstance(call.error, UnsupportedError):
            # It lacks what the first has, so there is nothing to compare from here on.
            raise UnsupportedError(f"{call.method}: {theirs.error}")
        if isinstance(theirs.error, KeyError) and call.error is None:
            self._refuse_untold(theirs.error)
        left = [call.method, asked, *ending_of(self._names, call, self._ordered)]
        right = [call.method, asked, *ending_of(self._second_names, theirs, self._ordered)]
        return compare_calls([left], [right])

    def _refuse_untold(self, error: KeyError) -> None:
        """Raise if the second core was given a handle that no call had told of."""
        handle = error.args[0] if error.args else None
        if type(handle) is int and type(self._second_names.asked(handle)) is not int:
            raise UnknownNameError(f"no call told of the handle {handle}")

    def _compare_sizes(self) -> Difference | None:
        mine = sizes_of(self._first, self._readings)
        theirs = _answer(lambda: sizes_of(self._second, self._readings))
        if isinstance(theirs, BaseException):
            return Difference(f"sizes.ok|{type(theirs).__name__}", mine, str(theirs))
        found = compare_sizes(mine, theirs)
        if found is not None or self._changes % (self._sizes_every * TOTAL_EVERY):
            return found
        total = list(self._first.total_size())
        other = _answer(lambda: list(self._second.total_size()))
        return first_difference(total, other, "tree.total")

    # --- Telling --------------------------------------------------------------------------

    def _judge(self, call: Call, found: Difference | None) -> None:
        if found is None:
            return
        if not found.is_soft:
            self._part(call, found)
        divergence = self._divergence(found, call.method)
        if divergence.signature not in self._soft:
            self._soft.add(divergence.signature)
            self._reporter.soft(divergence)

    def _part(self, call: Call, found: Difference) -> NoReturn:
        """Report a hard difference and end."""
        divergence, trace = self._divergence(found, call.method), self._trace(found)
        if trace is not None and trace.header.expect == "diverges":
            # The last op of the trace is the one that the call belongs to.
            last = kind_of(trace.ops[-1]) if trace.ops else call.method
            divergence = self._divergence(found, last)
            trace.header.signature = divergence.signature
        self._reporter.divergence(divergence, trace)
        raise ShadowDivergenceError(divergence, self._status.last)

    def _divergence(self, found: Difference, op_kind: str) -> Divergence:
        return Divergence(
            pair=self._status.pair,
            kind="difference",
            op_index=self._status.calls,
            op_kind=op_kind,
            where=found.where,
            left=found.left,
            right=found.right,
            is_soft=found.is_soft,
        )

    def _trace(self, found: Difference) -> Trace | None:
        """The run so far; None if it can't be had, and the reporter knows why."""
        if self._history is None:
            return None
        told = self._divergence(found, "")
        note = f"what a cache called up to {place_of(told)}: {self._reporter.values_of(told)}"
        # Without the call that shows it, nothing of the run does.
        expect = "agrees" if self._history.lacks_last else "diverges"
        try:
            return self._history.trace(pair=told.pair, expect=expect, note=note)
        except Exception as error:
            self._reporter.no_trace = shown(error)
            return None


def shadowed(
    first: Any,
    methods: Crossing,
    make_second: Callable[[], TreeCore],
    components: Sequence[ComponentType],
    reporter: Reporter,
    make_history: Callable[[], History] | None = None,
    sizes_every: int = 1,
    strict: bool = False,
) -> Any:
    """Give a core a shadow; returns the same core, which has `treedrift_status` from now on.

    A second core that can't be built or a first that can't be watched is a fault: it is told, and
    the first goes on alone; with `strict` it is raised. A history that can't be kept costs the
    trace alone.
    """
    reporter.is_strict = strict
    history = None
    if make_history is not None and not reporter.no_trace:
        try:
            history = make_history()
        except Exception as error:
            reporter.no_trace = str(error)
    try:
        first.treedrift_status = reporter.status
        shadow = Shadow(first, make_second(), components, reporter, history, sizes_every)
        return watch(first, methods, shadow, strict, reporter.fault)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        reporter.fault(error)
        if strict:
            raise
        return first


# --- The second core ----------------------------------------------------------------------


def _make(core: TreeCore, call: Call) -> None:
    """Make a call on a core; whatever it raises is how it ended."""
    buffers: dict[str, Any] = {
        name: [] if name == "cache_actions" else {}
        for name in parameters_of(call.method)
        if name in BUFFERS
    }
    answer = _answer(lambda: _called(core, call, buffers))
    if isinstance(answer, BaseException):
        call.error = answer
    else:
        call.result, call.filled = answer, buffers


def _called(core: TreeCore, call: Call, buffers: dict[str, Any]) -> Any:
    if call.method == CLEARED:
        return core.kv_events.record_all_cleared()
    if call.method.endswith(" ="):
        return setattr(core, call.method.removesuffix(" ="), call.arguments["value"])
    if call.method in PROPERTIES:
        return getattr(core, call.method)
    given = call.arguments | buffers
    # By place as far as nothing is left out: as all that call a core do it.
    by_place = list(takewhile(given.__contains__, _parameters_by_place(call.method)))
    by_name = {name: item for name, item in given.items() if name not in by_place}
    return getattr(core, call.method)(*map(given.__getitem__, by_place), **by_name)


@cache
def _parameters_by_place(method: str) -> list[str]:
    found = inspect.signature(vars(TreeCore)[method]).parameters.values()
    return [one.name for one in found if one.kind is one.POSITIONAL_OR_KEYWORD][1:]


def _answer(ask: Callable[[], Any]) -> Any:
    """What the second core answers, or whatever it raises: a native panic is no `Exception`."""
    try:
        return ask()
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        return error


def _ids_of(receipt: IncLockRefResult | DecLockRefParams) -> list[int]:
    """Ids of the window boundaries that a receipt locks, or that its release is the last of."""
    maps = (receipt.component_lock_uuids, receipt.component_host_lock_uuids)
    found = [pair for one in maps for pair in one.items()]
    skipped = receipt.skipped_lock_components
    return [uuid for kind, uuid in found if uuid is not None and kind not in skipped]


Reading = tuple[int, str, tuple[Any, ...]]
"""A place in `compare.SIZE_NAMES`, and the method and arguments that fill it."""


def readings_of(components: Sequence[ComponentType]) -> list[Reading]:
    """How the counters of a tree with these components are read."""
    read: list[Reading] = [(SIZE_NAMES.index("has_ongoing_insert"), "has_ongoing_insert", ())]
    for kind in components:
        place = SIZE_NAMES.index(_EVICTABLE[kind])
        if kind in SIZES:
            evictable, protected = SIZES[kind]
            read += [(place, evictable, ()), (place + 1, protected, ())]
        else:
            read.append((place, "component_evictable_size", (kind,)))
            read.append((place + 1, "component_protected_size", (kind,)))
    return read


def sizes_of(core: Any, readings: Sequence[Reading]) -> list[int]:
    """The counters of a core in the order of `compare.SIZE_NAMES`; what is not read stands at 0."""
    told = [0] * len(SIZE_NAMES)
    for place, method, arguments in readings:
        told[place] = getattr(core, method)(*arguments)
    return told


def translated(first: Names, second: Names, name: str, item: Any) -> Any:
    """A copy of an argument or field called `name`, with the second core's handles and receipts.

    They go by the number that each side gave them.
    """
    if name in HANDLE_FIELDS:
        return first.handle_in(second, item)
    if item is None:
        return None
    if name in HANDLE_LIST_FIELDS:
        return type(item)([first.handle_in(second, one) for one in item])
    if name in TRANSFERS:
        return [(operation, first.handle_in(second, node)) for operation, node in item]
    if name in RECEIPT_FIELDS:
        return {kind: first.receipt_in(second, uuid) for kind, uuid in item.items()}
    return _copied(first, second, item)


def _copied(first: Names, second: Names, item: Any) -> Any:
    if type(item) in ATOMS or isinstance(item, Enum):
        return item
    if isinstance(item, torch.Tensor):
        return item.clone()
    if isinstance(item, array):
        return item[:]
    if isinstance(item, RadixKey):
        tokens = item.token_ids[:]
        return RadixKey(tokens, item.extra_key, item.is_bigram, item.limit, item.cache_salt)
    if isinstance(item, msgspec.Struct):
        fields = {
            name: translated(first, second, name, getattr(item, name))
            for name in item.__struct_fields__
        }
        return type(item)(**fields)
    if isinstance(item, Mapping):
        return {key: _copied(first, second, one) for key, one in item.items()}
    if isinstance(item, (list, tuple)):
        return type(item)([_copied(first, second, one) for one in item])
    return copy.deepcopy(item)  # A misuse may pass anything.
