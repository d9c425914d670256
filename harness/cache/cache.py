"""The cache: requests on top of the controller, from arrival to release (CTL-37 to CTL-40).

It plays the part of a server's scheduler and model: it allocates slots for tokens, computes their
KV (fingerprints), inserts them into the tree and reads what a match returns. Whenever a request
would read slots of the tree, their contents are checked.
"""

from __future__ import annotations

from array import array

import msgspec
import torch

from treedrift.backends.contract import (
    ComponentType,
    InsertParams,
    InsertResult,
    MatchResult,
    NodeId,
    RadixKey,
    TreeCore,
)
from treedrift.backends.pools import (
    SHORT,
    PagedAllocator,
    Pools,
    extend_fingerprints,
    shared_fingerprints,
)

from ..config import MAX_I64, Config
from ..ops import Namespace
from .controller import Controller, HeldLock
from .findings import CacheError, OracleFinding
from .requests import Request, Tracking
from .state_side import Offer, StateSide
from .window_side import WindowSide

FULL_ONLY = ("full",)
"""Trees in which a finished prompt gets a node of its own (CTL-38, item 10)."""


class Cache(Controller):
    """The controller with its requests.

    `requests` are live, in order of arrival; `waiting` were retracted, in order of retraction.
    """

    def __init__(self, core: TreeCore, config: Config, pools: Pools) -> None:
        self.requests: list[Request] = []
        self.waiting: list[Request] = []
        # A key of pairs has a token more than it has units.
        self._extra = 1 if config.is_bigram else 0
        # What each row's tokens stand for. A request uses it while it holds the row.
        self._row_fingerprints = torch.empty_like(pools.table.slots)
        super().__init__(core, config, pools)
        self._windows = WindowSide(core, config, pools, self.findings)
        self._states = None if pools.states is None else StateSide(self, pools.states)

    def reset(self) -> None:
        """Empty the tree, end every request, clear slots and rows."""
        for request in self.requests:
            self._check_row(request)
        super().reset()
        self.requests.clear()
        self.waiting.clear()
        self.pools.clear()

    # --- Admission ------------------------------------------------------------------------

    def arrive(
        self,
        prompt: array[int],
        namespace: Namespace,
        priority: int = 0,
        session_id: str | None = None,
        rotation_base: int | None = None,
        cow: bool = True,
    ) -> Request | None:
        """Admit a request: match, lock, take a row, read the cached prefix (CTL-37).

        Without `cow` a request with Mamba states starts from the first token, whatever is cached.
        None, with nothing done, when no row or no state is to be had, or the prompt is empty or
        longer than a row.
        """
        table = self.pools.table
        if not 0 < len(prompt) <= table.row_length or table.available_size() == 0:
            return None
        # At least one token must be computed, so the last one is never looked up.
        limit = max(0, len(prompt) - max(1, self._windows.replayed))
        matched = self.match(self._key(prompt, namespace, limit))
        if self._states is not None and not cow:
            matched = msgspec.structs.replace(
                matched, device_prefix_len=0, last_device_node=self._root(namespace)
            )
        tracking = None
        if self._states is None:
            lock = self.lock(matched.last_device_node)
        elif (found := self._with_states(self._states, matched)) is not None:
            lock, tracking = found
        else:
            return None
        row = table.alloc_row()
        if row is None:
            raise CacheError("no row, although one was free")
        request = Request(
            tokens=array("q", prompt),
            namespace=namespace,
            priority=priority,
            session_id=session_id,
            rotation_base=rotation_base,
            prompt_len=len(prompt),
            row=row,
            slots=table.slots[row],
            lock=lock,
            fingerprints=self._row_fingerprints[row],
            tracking=tracking,
        )
        self._describe(request, 0)
        self.requests.append(request)
        self._adopt_prefix(request, matched.device_prefix_len)
        self._windows.admit(request, matched.swa_branching_seqlen)
        return request

    def _with_states(
        self, states: StateSide, matched: MatchResult
    ) -> tuple[HeldLock, Tracking] | None:
        """Lock what was matched and take the states of a request; None, with nothing done: short.

        The slot for the copy comes before the lock, the others after it (CTL-12, MAM-R20).
        """
        node_id = matched.last_device_node
        own, source = None, states.source(node_id)
        if source is not None and (own := states.slot_for_copy(node_id)) is None:
            return None
        lock = self.lock(node_id)
        tracking = states.bind(own, source, matched.mamba_branching_seqlen)
        if tracking is None:
            self.unlock(lock)
            states.give_back(own)
            return None
        return lock, tracking

    def _adopt_prefix(self, request: Request, length: int) -> None:
        """Put the cached prefix into the row (CTL-15)."""
        path = self._path_slots(request)
        if path.numel() < length:
            raise CacheError(f"a match of {length} has a path of {path.numel()} slots")
        if length:
            prefix = path[:length]
            self._check_content(request, prefix, 0)
            request.slots[:length] = prefix
        request.computed_len = request.protected_len = length

    def _path_slots(self, request: Request) -> torch.Tensor:
        """The slots of the path to the node that the request has locked."""
        root = self._root(request.namespace)
        return self.core.collect_full_device_indices(request.lock.node_id, root)

    def _root(self, namespace: Namespace) -> NodeId:
        return self.core.root_node_handle(namespace.extra_key)

    # --- Computing tokens -----------------------------------------------------------------

    def prefill(self, request: Request, count: int | None = None, checkpoint: bool = True) -> bool:
        """Compute `count` more tokens of the prompt (all when None), then checkpoint or not.

        False, with the request unchanged, when memory is short even after eviction.
        """
        rest = request.prompt_len - request.computed_len
        count = rest if count is None else min(count, rest)
        if count <= 0:
            return True
        if not self._compute(request, count):
            return False
        if checkpoint:
            self.checkpoint(request)
        return True

    def decode(self, request: Request, tokens: array[int]) -> bool:
        """A prefilled request produces `tokens`, as many as its row has room for.

        False, with the request unchanged, when memory is short even after eviction.
        """
        length = len(request.tokens)
        tokens = tokens[: self.pools.table.row_length - length]
        if not request.is_prefilled or not tokens:
            return True
        self._windows.give_up(request, request.computed_len - 1)
        request.tokens.extend(tokens)
        self._describe(request, length)
        if self._compute(request, len(tokens), each_step=True):
            return True
        del request.tokens[length:]
        return False

    def _compute(self, request: Request, count: int, *, each_step: bool = False) -> bool:
        """Allocate slots for the next `count` tokens and write their KV and the state.

        A model computes them in one go, or each after the one before it.
        """
        start, end = request.computed_len, request.computed_len + count
        row = request.slots
        slots = self._slots_for(row, start, end)
        if slots is None:
            return False
        self._windows.check_row(request)
        content = request.fingerprints[start:end]
        self.pools.kv.write(slots, content)
        self._windows.write(slots, content)
        if self._states is not None:
            self._states.advance(request, start, end, each_step=each_step)
        row[start:end] = slots
        request.computed_len = end
        return True

    def _slots_for(self, row: torch.Tensor, start: int, end: int) -> torch.Tensor | None:
        """Slots and their peers for positions `start` to `end` of a row, evicting if need be.

        Both sides are asked before either is touched (POOL-25, POOL-27, POOL-33).
        """
        allocator, count = self.pools.allocator, end - start
        if isinstance(allocator, PagedAllocator):
            count = allocator.pages_between(start, end) * allocator.page_size
        needs = dict.fromkeys((ComponentType.FULL, *self.pools.windows), count)
        if not self.make_room(needs):
            return None
        slots = self._take(row, start, end)
        if slots is not None:
            for component in self.pools.windows:
                self.attach_window(component, slots)
        return slots

    def _take(self, row: torch.Tensor, start: int, end: int) -> torch.Tensor | None:
        allocator = self.pools.allocator
        if not isinstance(allocator, PagedAllocator):
            return allocator.alloc(end - start)
        last = int(row[start - 1]) if start > 0 else -1
        if end - start == 1:
            return allocator.alloc_decode([end], [last])
        return allocator.alloc_extend([start], [end], [last])

    # --- Checkpoint and release -----------------------------------------------------------

    def checkpoint(self, request: Request) -> None:
        """Insert what a request has computed and move its lock there (CTL-38)."""
        self._checkpoint(request, is_finished=False)

    def _checkpoint(self, request: Request, *, is_finished: bool) -> None:
        windows, states = self._windows, self._states
        branch = windows.branch(request)
        count = request.computed_len if branch is None else branch + self._extra
        offer = None
        if states is not None:
            offer = states.offer(request, is_finished=is_finished)
            count = min(count, offer.depth)
        if not is_finished:
            windows.give_up(request, max(0, count - self._extra) - 1)
        try:
            result = self._insert_computed(request, count, offer, branch)
        except Exception:
            if states is not None and offer is not None and not is_finished:
                states.withdraw(request, offer)
            raise
        if states is not None and offer is not None:
            is_taken = result is not None and not result.mamba_exist
            states.settle(request, offer, is_taken=is_taken, is_finished=is_finished)
        if result is not None and result.swa_branch_inserted:
            windows.after_branch(request, is_finished)

    def _insert_computed(
        self, request: Request, count: int, offer: Offer | None, branch: int | None
    ) -> InsertResult | None:
        """Insert the first `count` tokens and lock them; None when nothing was inserted."""
        key = self._request_key(request, count)
        length, owned = len(key), request.protected_len
        if count <= 0 or length < owned:
            # A match of pairs covers one token more than its own key would: nothing is new.
            return None
        # The row itself, not a copy: the tree stores copies (INS-25, INS-40), and frees that are
        # views of it are executed before the path is written back (BND-29).
        values = request.slots[:length]
        params = self._insert_params(
            request, key, values, owned, request.inserted_len, request.priority
        )
        self._windows.describe(request, params, branch)
        if offer is not None:
            params.mamba_value, params.mamba_keep_idx = offer.slot, offer.keep
        result = self.insert(params)
        if result.rotation_tail_declined:
            return None
        request.inserted_len = max(request.inserted_len, length)
        if self.config.components == FULL_ONLY:
            self._insert_prompt(request, values, length)
        self._move_lock(request, result, length)
        if branch is not None:
            self._windows.cut(request)
        self._windows.check_path(request)
        return result

    def _insert_prompt(self, request: Request, values: torch.Tensor, length: int) -> None:
        """Split the leaf where the prompt ends; raise the prompt's priority (CTL-38, item 10)."""
        key = self._request_key(request, min(request.prompt_len, request.computed_len))
        prompt = len(key)
        if 0 < prompt < length:
            priority = min(request.priority + 1, MAX_I64)
            self.insert(
                self._insert_params(request, key, values[:prompt], prompt, prompt, priority)
            )

    def _move_lock(self, request: Request, result: InsertResult, length: int) -> None:
        """Read the path back into the row and lock it (CTL-38, items 11 to 13)."""
        node_id = result.last_device_node
        if node_id is None:
            raise CacheError("an insert names no device node")
        path = self.core.collect_full_device_indices(node_id, self._root(request.namespace))
        count = path.numel()
        if count != length or result.prefix_len > length:
            raise CacheError(
                f"an insert of {length} units found {result.prefix_len}, its path has {count}"
            )
        start = request.protected_len
        # What the row took from the tree before was checked then, and is once more when the row
        # is given back: a slot that is freed meanwhile is poisoned, and stays wrong until then.
        same = torch.equal(path[:start], request.slots[:start])
        self._check_content(request, path, start if same else 0)
        if start < length:
            request.slots[start:length] = path[start:]
        self.unlock(request.lock)
        skip = (ComponentType.MAMBA,) if self.config.state_skip_lock else ()
        request.lock = self.lock(node_id, skip)
        request.protected_len = length

    def early_release(self, request: Request) -> None:
        """Give up the window of the request's lock, if it ends below the root (CTL-34)."""
        held = request.lock
        bound = held.receipt.component_lock_uuids.get(ComponentType.SWA)
        if bound is None or held.window_released:
            return
        if self._states is not None:
            # The cached state is unlocked along with the window, so it is copied before.
            self._states.start(request)
        self.release_window(held)
        self._windows.distrust(request)

    def finish(self, request: Request) -> None:
        """A request ends well: its tokens go into the tree (CTL-39)."""
        self._checkpoint(request, is_finished=True)
        self._release(request)

    def abort(self, request: Request) -> None:
        """A request ends badly: what it alone holds is freed (CTL-39)."""
        self._release(request)

    def retract(self, request: Request) -> None:
        """A request gives all it holds back and waits, with its tokens so far."""
        self._release(request)
        self.waiting.append(request)

    def readmit(self, request: Request) -> Request | None:
        """Admit a waiting request anew, all its tokens being its prompt. None: it waits on."""
        admitted = self.arrive(
            request.tokens,
            request.namespace,
            request.priority,
            request.session_id,
            request.rotation_base,
        )
        if admitted is not None:
            self.waiting.remove(request)
        return admitted

    def _release(self, request: Request) -> None:
        """Free what is in the row but not in the tree, unlock, give the row back (CTL-39)."""
        self._check_row(request)
        self._windows.release(request)
        self.unlock(request.lock)
        if self._states is not None:
            self._states.release(request)
        self.pools.table.free_row(request.row)
        self.requests.remove(request)

    def private_slots(self, request: Request) -> torch.Tensor:
        """Slots of a live request that the tree does not own (CTL-40, CTL-60)."""
        return request.slots[request.protected_len : request.computed_len]

    def private_states(self, request: Request) -> list[int]:
        """State slots that a live request owns."""
        return [] if request.tracking is None else request.tracking.slots.slots()

    def window_owned(self, request: Request, component: ComponentType) -> torch.Tensor:
        """Full slots of a live request's row whose peers in a window are its own."""
        return self._windows.owned(request, component)

    # --- Helpers --------------------------------------------------------------------------

    def _key(self, tokens: array[int], namespace: Namespace, limit: int | None = None) -> RadixKey:
        return RadixKey(
            tokens, namespace.extra_key, self.config.is_bigram, limit, namespace.cache_salt
        )

    def _request_key(self, request: Request, count: int) -> RadixKey:
        """The first `count` tokens as a key of whole pages, in an array of its own (KEY-8)."""
        page = self.config.page_size
        if page > 1:
            units = max(0, count - self._extra) // page * page
            count = units + self._extra if units else 0
        return self._key(request.tokens[:count], request.namespace)

    def _insert_params(
        self,
        request: Request,
        key: RadixKey,
        values: torch.Tensor,
        owned: int,
        inserted: int,
        priority: int,
    ) -> InsertParams:
        return InsertParams(
            key=key,
            value=values,
            prev_prefix_len=owned,
            inserted_len=inserted,
            priority=priority,
            session_id=request.session_id,
            rotation_base=request.rotation_base,
        )

    def _describe(self, request: Request, start: int) -> None:
        """Fill in the fingerprints of the request's tokens from `start` on."""
        namespace = (request.namespace.extra_key, request.namespace.cache_salt)
        row, end = request.fingerprints, len(request.tokens)
        if start == 0 and end <= SHORT:
            row[:end] = shared_fingerprints(request.tokens, namespace, row.device)
        else:
            extend_fingerprints(row, request.tokens, namespace, start)

    def _check_row(self, request: Request) -> None:
        """Everything that a request has computed or read must still be there."""
        self._check_content(request, request.slots[: request.computed_len], 0)
        self._windows.check_row(request)
        if self._states is not None:
            self._states.check_row(request)

    def _check_content(self, request: Request, slots: torch.Tensor, start: int) -> None:
        """Report slots at positions from `start` on, whose KV is not that of the tokens.

        `slots` are those of positions 0 and after.
        """
        count = slots.numel()
        if start >= count:
            return
        slots, expected = slots[start:], request.fingerprints[start:count]
        if self.pools.kv.holds(slots, expected):
            return
        places = (self.pools.kv.read(slots) != expected).nonzero().flatten()
        first = int(places[0])
        message = (
            f"{len(places)} of {count} positions hold KV of another prefix, "
            f"the first is position {start + first} in slot {int(slots[first])}"
        )
        self.findings.append(OracleFinding("kv_content", message))
