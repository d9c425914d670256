"""Serves requests from SGLang's cache as SGLang's scheduler does, without a model.

Requests, batches, allocation, checkpoints and release are SGLang's own; here is only what a
scheduler decides between them: who is admitted, how much of a prompt a step computes, who gives
way when slots are short. Output tokens are made up. One step computes the prompts of the admitted
requests and then lets all that run decode a token.
"""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import msgspec
import torch

from treedrift.harness.tokens import invent

from .ledger import Ledger, pools_of
from .pools import build_cache
from .setting import Setting
from .store import new_store

STATES_FOR_ONE = 5
"""Slots that admitting one request may take: its own, two it tracks in, a copy, one to donate."""


@dataclass(kw_only=True)
class Ask:
    """A request to serve: `output` tokens after the prompt; the rest as SGLang's `Req` has it."""

    name: str
    prompt: array[int]
    output: int = 1
    first_output: int = 0
    extra_key: str | None = None
    lora_id: str | None = None
    cache_salt: str | None = None
    priority: int | None = None


class Figures(msgspec.Struct):
    """What became of the requests."""

    finished: int = 0
    aborted: int = 0
    retracted: int = 0
    too_long: int = 0
    prompt_tokens: int = 0
    hit_tokens: int = 0


class Scheduler:
    """A cache and the requests that wait for it or run in it."""

    def __init__(self, setting: Setting, keep: bool = False) -> None:
        self.setting = setting
        self.cache = build_cache(setting)
        self.store: Any = None
        if setting.linker:
            self.store = new_store(setting.components, refuse_every=5)
            self.cache.init_cache_linker(self.store)
        self.allocator = self.cache.token_to_kv_pool_allocator
        self.pools = pools_of(self.cache)
        self.states = self.pools.get("mamba")
        self.ledger = Ledger(self.cache, keep)
        self.figures = Figures()
        self.waiting: list[Any] = []
        self.running: list[Any] = []
        self.chunked: Any = None
        self._served = 0

    # --- What others ask for --------------------------------------------------------------

    def submit(self, ask: Ask) -> None:
        """Let a request wait to be served."""
        from sglang.srt.managers.schedule_batch import Req
        from sglang.srt.sampling.sampling_params import SamplingParams

        request = Req(
            rid=ask.name,
            origin_input_text="",
            origin_input_ids=ask.prompt,
            sampling_params=SamplingParams(max_new_tokens=ask.output),
            extra_key=ask.extra_key,
            lora_id=ask.lora_id,
            cache_salt=ask.cache_salt,
            priority=ask.priority,
        )
        # Tokens that nobody else's prompt or output holds.
        request.made_up = (self._served, ask.first_output)
        self._served += 1
        self.waiting.append(request)

    @property
    def has_work(self) -> bool:
        return bool(self.waiting or self.running or self.chunked)

    def step(self) -> None:
        """Compute prompts of waiting requests, then one token of every running one."""
        if self.store is not None:
            self.cache.check_hicache_events()
            if not self._has_slots(self.setting.chunk):
                self._let_offloads_land()
        admitted = self._admit()
        if admitted:
            self._prefill(admitted)
        if self.running:
            self._decode()
        self.note_sizes()

    def abort(self, name: str) -> None:
        """A client went away; nothing happens if the request has ended."""
        request = self._named(name)
        if request is None:
            return
        self.ledger.note("abort", name)
        self._end(request, is_aborted=True)

    def retract(self, name: str) -> None:
        """A running request gives everything back and waits again."""
        from sglang.srt.managers.schedule_batch import release_req

        request = next((each for each in self.running if each.rid == name), None)
        if request is None:
            return
        self.ledger.note("retract", name)
        self.running.remove(request)
        release_req(
            req=request,
            remaing_req_count=len(self.running),
            req_to_token_pool=self.cache.req_to_token_pool,
            token_to_kv_pool_allocator=self.allocator,
            tree_cache=self.cache,
            hisparse_coordinator=None,
        )
        self.figures.retracted += 1
        self.waiting.insert(0, request)

    def rank_waiting(self) -> None:
        """Look all waiting requests up and ask for their order, as one policy of SGLang does."""
        from sglang.srt.mem_cache.common import touch_waiting_prefix

        nodes = []
        for request in self.waiting:
            touch_waiting_prefix(request, self.cache)
            # No request goes with the lookup: nothing is copied or loaded for it yet.
            found = self.cache.match_prefix(self._lookup(request))
            self.ledger.note("found", request.rid, found.device_prefix_len)
            nodes.append(found.last_device_node)
        if nodes:
            self.ledger.note("order", self.cache.dfs_weight_order(nodes))

    def flush(self) -> None:
        """Empty the cache, as the server's command does; only while nothing runs."""
        if self.running or self.chunked:
            raise RuntimeError("requests run: a server flushes its cache only when none does")
        for request in list(self.waiting):
            if request.kv.holds_mamba:
                self._end(request, is_aborted=True)
        self.ledger.note("flush")
        self.cache.reset()
        self.cache.req_to_token_pool.clear()
        self.allocator.clear()

    def drain(self) -> None:
        """Serve until nothing is left."""
        while self.has_work:
            self.step()

    def _let_offloads_land(self) -> bool:
        """Complete all offloads, so that their nodes can be evicted; False if there are none."""
        if self.store is None or not self.store.under_way:
            return False
        self.store.complete(len(self.store.under_way))
        self.cache.check_hicache_events()
        return True

    def evict_all(self) -> None:
        """Evict whatever can be; when nothing runs, every slot must be free afterwards."""
        from sglang.srt.mem_cache.base_prefix_cache import EvictParams

        self._let_offloads_land()
        size = self.setting.slots
        self.cache.evict(
            EvictParams(num_tokens=size, swa_num_tokens=size, mamba_num=self.setting.states)
        )

    def free_slots(self) -> dict[str, int]:
        """Free slots of every pool."""
        return {name: int(pool.available_size()) for name, pool in self.pools.items()}

    def check(self) -> None:
        """Let the core check itself, and write down what it holds, in any order."""
        self.cache.sanity_check()
        held = [self.cache.all_values_flatten()]
        if self.states is not None:
            held.append(self.cache.all_mamba_values_flatten())
        self.ledger.note("held", *(slots.sort().values for slots in held))

    def note_sizes(self) -> None:
        """Write down free slots, the cache's sizes and its events."""
        cache = self.cache
        sizes = [
            cache.full_evictable_size(),
            cache.full_protected_size(),
            cache.swa_evictable_size(),
            cache.swa_protected_size(),
            cache.mamba_evictable_size(),
            cache.mamba_protected_size(),
            cache.total_size(),
        ]
        self.ledger.note("sizes", self.free_slots(), sizes)
        self.ledger.note_frees()
        if self.setting.events:
            for event in cache.take_events():
                self._note_event(event)

    def _note_event(self, event: Any) -> None:
        """Write an event down; removals block by block, as cores may bundle them (EVT-19)."""
        if type(event).__name__ != "BlockRemoved":
            self.ledger.note("event", event)
            return
        for block in event.block_hashes:
            self.ledger.note("event", type(event)([block], medium=event.medium))

    # --- Prompts --------------------------------------------------------------------------

    def _admit(self) -> list[Any]:
        """Requests whose prompts this step computes, each with its prefix locked."""
        left = self.setting.chunk
        admitted = []
        if self.chunked is not None:
            request, self.chunked = self.chunked, None
            request.init_next_round_input()
            left -= self._take_chunk(request, left)
            admitted.append(request)
        while self.waiting and left > 0 and self._has_room_for_one(len(admitted)):
            request = self.waiting[0]
            if not self._match(request, admitted):
                break
            self.waiting.pop(0)
            left -= self._take_chunk(request, left)
            self._locked(request)
            admitted.append(request)
            if self.chunked is not None:
                break
        return admitted

    def _has_room_for_one(self, admitted: int) -> bool:
        """Whether a row is free, and states if the cache has any."""
        if len(self.running) + admitted >= self.setting.rows or self.chunked is not None:
            return False
        if self.states is None:
            return True
        free = self.states.available_size() + self.cache.mamba_evictable_size()
        return bool(free >= STATES_FOR_ONE * (admitted + 1) + len(self.running))

    def _match(self, request: Any, admitted: list[Any]) -> bool:
        """Look a request's tokens up and load what the store has; False if it has to wait."""
        from sglang.srt.mem_cache.base_prefix_cache import InitLoadBackParams

        request.init_next_round_input(self.cache)
        pin = self.cache.lock(request.last_node)
        try:
            needed = len(request.full_untruncated_fill_ids) - request.prefix_len
            # Those that were admitted before it have no slots yet.
            promised = sum(each.extend_len + self._output_to_come(each) for each in admitted)
            rounding = len(admitted) * 2 * self.setting.page_size
            needed += self._output_to_come(request) + promised + rounding
            if not self._has_slots(needed):
                if self._let_offloads_land():
                    return False
                if not self.running and not admitted:
                    # Alone it does not fit, so it never will.
                    self.figures.too_long += 1
                    self._end(request, is_aborted=True)
                return False
            if self.store is not None and request.needs_host_load_back():
                loaded, node = self.cache.init_load_back(
                    InitLoadBackParams(
                        best_match_node=request.best_match_node,
                        host_hit_length=request.host_hit_length,
                        req=request,
                    )
                )
                self.ledger.note("loaded", request.rid, loaded)
                request.last_node = node
                request.prefix_len += loaded
        finally:
            self.cache.unlock(pin)
        return True

    def _has_slots(self, tokens: int) -> bool:
        """Whether slots for so many more tokens are free, or will be if the cache evicts."""
        page = self.setting.page_size
        running = sum(self._output_to_come(each) + page for each in self.running)
        needed = math.ceil(tokens / page) * page + page + running
        cache, free = self.cache, self.free_slots()
        if needed > free["full"] + cache.full_evictable_size():
            return False
        if not self.setting.has_window:
            return True
        in_step = min(tokens, self.setting.chunk) + self.setting.window
        alive = in_step + (len(self.running) + 2) * page
        return bool(alive <= free["swa"] + cache.swa_evictable_size())

    def _output_to_come(self, request: Any) -> int:
        return int(request.sampling_params.max_new_tokens) - len(request.output_ids)

    def _take_chunk(self, request: Any, left: int) -> int:
        """Say how much of the prompt this step computes; the rest waits for the next one."""
        todo = len(request.full_untruncated_fill_ids) - request.prefix_len
        page = self.setting.page_size
        count = todo
        if todo > left:
            # All but the last part of a prompt end where a page does.
            count = max((request.prefix_len + left) // page * page - request.prefix_len, page)
            if count < todo:
                self.chunked = request
        count = min(count, todo)
        request.extend_end = request.prefix_len + count
        return int(count)

    def _locked(self, request: Any) -> None:
        request.lock = self.cache.lock(request.last_node)
        self.figures.prompt_tokens += len(request.full_untruncated_fill_ids)
        self.figures.hit_tokens += request.prefix_len
        self.ledger.hit(request.rid, request.prefix_len)

    def _prefill(self, admitted: list[Any]) -> None:
        """Compute the admitted parts, insert them, and let complete prompts run."""
        from sglang.srt.mem_cache.allocation import alloc_for_extend
        from sglang.srt.mem_cache.common import checkpoint_kv_cache
        from sglang.srt.model_executor.forward_batch_info import ForwardMode

        batch = self._batch(admitted, ForwardMode.EXTEND)
        batch.prefix_lens = [each.prefix_len for each in admitted]
        batch.extend_lens = [each.extend_len for each in admitted]
        batch.extend_num_tokens = sum(batch.extend_lens)
        batch.seq_lens_cpu = self._tensor([each.extend_end for each in admitted])
        batch.seq_lens = batch.seq_lens_cpu.clone()
        slots, rows, _ = alloc_for_extend(batch)
        self.ledger.note("computed", slots, rows)
        for request in admitted:
            request.extend_batch_idx += 1
            self._track_prompt(request)
        if self.store is not None:
            self.cache.ready_to_load_host_cache()
            self.cache.finish_external_linker_loads(admitted)
        for request in admitted:
            if request is self.chunked:
                checkpoint_kv_cache(request, self.cache)
                continue
            self._append_output(request)
            if self._output_to_come(request) <= 0:
                self._end(request, is_aborted=False)
            else:
                checkpoint_kv_cache(request, self.cache)
                self.running.append(request)

    def _track_prompt(self, request: Any) -> None:
        """Say which states of a prompt the model left behind (MAM-C6)."""
        kv = request.kv
        kv.mamba_cow_src_index, kv.mamba_needs_clear = None, False
        if not self.setting.tracks_states:
            return
        grid = math.lcm(self.setting.state_grid, self.setting.page_size)
        start, end = request.prefix_len, request.extend_end
        if end - start < grid:
            return
        tracked = start + (end - start) // grid * grid
        kv.mamba_last_track_idx = kv.mamba_next_track_idx
        kv.mamba_next_track_idx = self._other_buffer(kv.mamba_next_track_idx)
        branch = request.mamba_branching_seqlen
        if branch is not None and start < branch < tracked and (branch - start) % grid == 0:
            tracked = branch
        kv.mamba_last_track_seqlen = tracked

    def _other_buffer(self, index: int) -> int:
        return int(self.cache.req_to_token_pool.get_mamba_ping_pong_other_idx(index))

    # --- Output ---------------------------------------------------------------------------

    def _decode(self) -> None:
        """Let every running request compute its last token and say the next one."""
        from sglang.srt.mem_cache.allocation import alloc_for_decode
        from sglang.srt.model_executor.forward_batch_info import ForwardMode

        while not self._batch(self.running, ForwardMode.DECODE).check_decode_mem():
            if self._let_offloads_land():
                continue
            if len(self.running) == 1:
                self._end(self.running[0], is_aborted=True)
                return
            self.retract(self.running[-1].rid)
        batch = self._batch(self.running, ForwardMode.DECODE)
        batch.seq_lens_cpu = self._tensor([each.kv.kv_committed_len for each in self.running])
        batch.seq_lens = batch.seq_lens_cpu.clone()
        batch.req_pool_indices_cpu = self._tensor([e.kv.req_pool_idx for e in self.running])
        batch.req_pool_indices = batch.req_pool_indices_cpu.clone()
        self.ledger.note("decoded", alloc_for_decode(batch, token_per_req=1))
        for request in list(self.running):
            request.decode_batch_idx += 1
            self._track_output(request)
            self._append_output(request)
            if self._output_to_come(request) <= 0:
                self._end(request, is_aborted=False)

    def _track_output(self, request: Any) -> None:
        """At every boundary the model leaves a state behind, in the other of two buffers."""
        kv, grid = request.kv, math.lcm(self.setting.state_grid, self.setting.page_size)
        if not self.setting.tracks_states or kv.kv_committed_len % grid:
            return
        kv.mamba_prev_track_seqlen = kv.mamba_last_track_seqlen
        kv.mamba_last_track_seqlen = kv.kv_committed_len
        kv.mamba_last_track_idx = kv.mamba_next_track_idx
        kv.mamba_next_track_idx = self._other_buffer(kv.mamba_next_track_idx)

    def _append_output(self, request: Any) -> None:
        serial, first = request.made_up
        (token,) = invent(serial, len(request.output_ids), 1)
        request.output_ids.append(first + token)

    # --- Ends -----------------------------------------------------------------------------

    def _end(self, request: Any, is_aborted: bool) -> None:
        """A request is over: what it computed goes into the tree, unless it was aborted."""
        from sglang.srt.managers.schedule_batch import FINISH_ABORT, FINISH_LENGTH
        from sglang.srt.mem_cache.common import release_kv_cache

        if is_aborted:
            self.figures.aborted += 1
            request.finished_reason = FINISH_ABORT()
            self.cache.release_aborted_request(request.cache_request_handle)
        else:
            self.figures.finished += 1
            request.finished_reason = FINISH_LENGTH(length=len(request.output_ids))
        if request.kv.holds_kv or request.kv.holds_mamba:
            release_kv_cache(request, self.cache, checkpoint=not is_aborted)
        for held in (self.waiting, self.running):
            if request in held:
                held.remove(request)
        if self.chunked is request:
            self.chunked = None
        self.ledger.note("ended", request.rid, is_aborted)

    def _lookup(self, request: Any) -> Any:
        from sglang.srt.mem_cache.base_prefix_cache import MatchPrefixParams
        from sglang.srt.mem_cache.radix_cache import RadixKey

        key = RadixKey(
            request.origin_input_ids + request.output_ids,
            extra_key=request.extra_key,
            cache_salt=request.cache_salt,
        )
        return MatchPrefixParams(key=key)

    def _named(self, name: str) -> Any:
        everyone = [*self.waiting, *self.running, *([self.chunked] if self.chunked else [])]
        return next((each for each in everyone if each.rid == name), None)

    def _batch(self, requests: list[Any], mode: Any) -> Any:
        """SGLang's batch of these requests, as far as allocating slots for them goes."""
        from sglang.srt.managers.schedule_batch import ScheduleBatch
        from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

        return ScheduleBatch(
            reqs=list(requests),
            req_to_token_pool=self.cache.req_to_token_pool,
            token_to_kv_pool_allocator=self.allocator,
            tree_cache=self.cache,
            model_config=SimpleNamespace(is_encoder_decoder=False),
            device="cpu",
            forward_mode=mode,
            spec_algorithm=SpeculativeAlgorithm.NONE,
        )

    @staticmethod
    def _tensor(values: list[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int64)
