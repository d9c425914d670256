"""Builds SGLang's cache on CPU pools, as a server builds its own.

Hides SGLang's imports, its global server arguments and the classes of its pools.
"""

from __future__ import annotations

import math
import sys
from functools import cache
from types import ModuleType
from typing import Any

import torch

from .setting import Setting

PLACE = "cpu"
KV_SHAPE = {"dtype": torch.float32, "device": PLACE, "head_num": 1, "head_dim": 1}
"""A layer of keys and values, as small as it can be: nothing reads them."""


@cache
def prepare_process() -> None:
    """Do once what a server process does before it builds a cache: load SGLang's plugins.

    A part of SGLang that needs a server's optional packages is replaced where they are missing.
    """
    parser = "sglang.srt.parser.reasoning_parser"
    try:
        __import__("openai")
        __import__("partial_json_parser")
    except ImportError:
        substitute: Any = ModuleType(parser)
        substitute.ReasoningParser = type("ReasoningParser", (), {})
        sys.modules.setdefault(parser, substitute)
    from sglang.srt.plugins import load_plugins

    from treedrift.inside.plugin import register

    load_plugins()
    # A working tree announces nothing, unlike an installed wheel; a second time does nothing.
    register()


def build_params(setting: Setting) -> Any:
    """SGLang's `CacheInitParams` with new pools; publishes the server arguments they need."""
    prepare_process()
    publish(setting)
    from sglang.srt.mem_cache.cache_init_params import CacheInitParams
    from sglang.srt.mem_cache.unified_cache.component_type import ComponentType

    table = _table(setting)
    return CacheInitParams(
        disable=False,
        req_to_token_pool=table,
        token_to_kv_pool_allocator=_allocator(setting, table),
        page_size=setting.page_size,
        is_eagle=setting.bigram,
        sliding_window_size=setting.window if setting.has_window else None,
        tree_components=tuple(ComponentType[name.upper()] for name in setting.components),
        enable_mamba_extra_buffer=setting.tracks_states,
        tree_core_backend=setting.core,
        eviction_policy=setting.policy,
        eviction_policy_config=setting.policy_config,
        enable_kv_cache_events=setting.events,
        dynamo_kv_event_format=setting.dynamo_events,
        chunked_prefill_size=setting.chunk,
    )


def build_cache(setting: Setting) -> Any:
    """SGLang's `UnifiedRadixCache`. Raises what SGLang or the core's factory raise."""
    params = build_params(setting)
    from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

    return UnifiedRadixCache(params)


def publish(setting: Setting) -> None:
    """Publish server arguments and switches for this process, as a server's start does."""
    from sglang.srt.environ import envs
    from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler

    envs.SGLANG_SWA_EVICTION_INTERVAL.set(setting.window_interval)
    envs.SGLANG_OPT_RELEASE_PREFILL_SWA.set(setting.early_release)

    grid = math.lcm(setting.state_grid, setting.page_size)
    given = ServerArgs(
        model_path="dummy",
        device=PLACE,
        page_size=setting.page_size,
        attention_backend="torch_native",
        chunked_prefill_size=setting.chunk,
        mamba_track_interval=grid,
    )
    given._mamba_cache_chunk_size = grid
    set_global_server_args_for_scheduler(given)


def _table(setting: Setting) -> Any:
    """The table of request rows, with Mamba's slots if there are any."""
    from sglang.srt.configs.mamba_utils import Mamba2CacheParams, Mamba2StateShape
    from sglang.srt.mem_cache.memory_pool import HybridReqToTokenPool, ReqToTokenPool

    rows = {
        "size": setting.rows,
        "max_context_len": setting.row_length,
        "device": PLACE,
        "enable_memory_saver": False,
    }
    if not setting.has_states:
        return ReqToTokenPool(**rows)
    shape = Mamba2StateShape.create(
        tp_world_size=1,
        intermediate_size=8,
        n_groups=1,
        num_heads=1,
        head_dim=8,
        state_size=4,
        conv_kernel=4,
    )
    return HybridReqToTokenPool(
        mamba_size=setting.states,
        mamba_spec_state_size=setting.rows,
        mamba_layer_ids=[1],
        cache_params=Mamba2CacheParams(shape=shape, layers=[1]),
        enable_mamba_extra_buffer=setting.tracks_states,
        speculative_num_draft_tokens=3,
        **rows,
    )


def _allocator(setting: Setting, table: Any) -> Any:
    """The allocator of device slots over a pool of keys and values."""
    from sglang.srt.mem_cache import memory_pool
    from sglang.srt.mem_cache.allocator.paged import PagedTokenToKVPoolAllocator
    from sglang.srt.mem_cache.allocator.swa import SWATokenToKVPoolAllocator
    from sglang.srt.mem_cache.allocator.token import TokenToKVPoolAllocator
    from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool

    size, page = setting.slots, setting.page_size
    shape = {**KV_SHAPE, "page_size": page}
    if setting.has_window:
        layers = {"full_attention_layer_ids": [0], "swa_attention_layer_ids": [1]}
        windows = SWAKVPool(size=size, size_swa=size, **layers, **shape)
        return SWATokenToKVPoolAllocator(size, size, page, torch.float32, PLACE, windows, False)
    shape = {**shape, "size": size, "enable_memory_saver": False}
    if setting.has_states:
        pool = memory_pool.HybridLinearKVPool(
            full_attention_layer_ids=[0], mamba_pool=table.mamba_pool, **shape
        )
    else:
        pool = memory_pool.MHATokenToKVPool(layer_num=1, **shape)
    if page == 1:
        return TokenToKVPoolAllocator(size, torch.float32, PLACE, pool, False)
    return PagedTokenToKVPoolAllocator(size, page, torch.float32, PLACE, pool, False)
