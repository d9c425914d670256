"""Builds cores through SGLang's registry, one per case, and prints what came of each as JSON.

Run in an environment with SGLang, where there is no pytest.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from types import SimpleNamespace
from typing import Any

import torch

NO_FOLDER = f"{__file__}/traces"
"""Below a file, where nobody can make a folder."""

SETTINGS = {
    "a core of ours": ("treedrift-rust", {}, {}),
    "our other core": ("treedrift-python", {}, {}),
    "sessions": ("treedrift-rust", {"enable_session_radix_cache": True}, {}),
    "another device": ("treedrift-python", {"device": "meta"}, {}),
    "a policy that nobody has": ("treedrift-rust", {"eviction_policy": "best"}, {}),
    "no variables": ("treedrift-shadow", {}, {}),
    "a pair of SGLang's": (
        "treedrift-shadow",
        {},
        {"TREEDRIFT_SHADOW_FIRST": "sglang-python", "TREEDRIFT_SHADOW_SECOND": "sglang-rust"},
    ),
    "a pair of ours": (
        "treedrift-shadow",
        {},
        {"TREEDRIFT_SHADOW_FIRST": "treedrift-rust", "TREEDRIFT_SHADOW_SECOND": "drill:lost-event"},
    ),
    "sessions under a shadow": ("treedrift-shadow", {"enable_session_radix_cache": True}, {}),
    "sessions under a strict shadow": (
        "treedrift-shadow",
        {"enable_session_radix_cache": True},
        {"TREEDRIFT_SHADOW_MODE": "strict"},
    ),
    "not drawn": ("treedrift-shadow", {}, {"TREEDRIFT_SHADOW_SAMPLE": "0"}),
    "a wrong variable": ("treedrift-shadow", {}, {"TREEDRIFT_SHADOW_MODE": "loud"}),
    "an unknown second core": (
        "treedrift-shadow",
        {},
        {"TREEDRIFT_SHADOW_SECOND": "drill:lost-evnt"},
    ),
    "a drill of the cache": (
        "treedrift-shadow",
        {},
        {"TREEDRIFT_SHADOW_SECOND": "drill:copy-pin-released-to-the-root"},
    ),
    "a recorder": ("treedrift-record", {}, {"TREEDRIFT_TRACE_DIR": "recorded"}),
    "a recorder of ours": (
        "treedrift-record",
        {},
        {"TREEDRIFT_TRACE_DIR": "recorded", "TREEDRIFT_RECORD_CORE": "treedrift-python"},
    ),
    "a recorder without a folder": ("treedrift-record", {}, {}),
    "a recorder that can't write": ("treedrift-record", {}, {"TREEDRIFT_TRACE_DIR": NO_FOLDER}),
    "a shadow that saves": ("treedrift-shadow", {}, {"TREEDRIFT_TRACE_DIR": "saved"}),
    "a shadow that can't write": ("treedrift-shadow", {}, {"TREEDRIFT_TRACE_DIR": NO_FOLDER}),
    "a wrong variable for somebody else": ("treedrift-rust", {}, {"TREEDRIFT_SHADOW_MODE": "loud"}),
}


class Told(logging.Handler):
    """Keeps what treedrift logs."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname} {record.getMessage()}")


def main() -> None:
    """Print one JSON object with a record for each case."""
    from sglang.srt.plugins import load_plugins

    load_plugins()
    told = Told()
    log = logging.getLogger("treedrift")
    log.setLevel(logging.INFO)
    log.addHandler(told)
    report = {}
    for case, (backend, given, variables) in SETTINGS.items():
        told.lines = []
        os.environ.update(variables)
        report[case] = build(backend, given) | {"log": told.lines}
        for name in variables:
            del os.environ[name]
    print("\n" + json.dumps(report))


def build(backend: str, given: dict[str, Any]) -> dict[str, Any]:
    """What the registry gives for this name: its class and what it shows, or its error."""
    from sglang.srt.mem_cache.cache_init_params import CacheInitParams
    from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
    from sglang.srt.mem_cache.unified_cache.components import FullComponent
    from sglang.srt.mem_cache.unified_cache.tree_core_registry import (
        create_tree_core,
        select_tree_core_backend,
    )

    device = given.pop("device", "cpu")
    params = CacheInitParams(
        disable=False,
        req_to_token_pool=SimpleNamespace(max_context_len=64),
        token_to_kv_pool_allocator=SimpleNamespace(device=torch.device(device), size=256),
        page_size=1,
        tree_components=(ComponentType.FULL,),
        tree_core_backend=backend,
        **given,
    )
    stub = SimpleNamespace(
        enable_session_radix_cache=params.enable_session_radix_cache,
        token_to_kv_pool_allocator=params.token_to_kv_pool_allocator,
        tree_components=params.tree_components,
        page_size=1,
    )
    components = {ComponentType.FULL: FullComponent(stub, params)}
    try:
        core = create_tree_core(select_tree_core_backend(params), params, components)
        core.reset()
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    status = getattr(core, "treedrift_status", None)
    return {
        "classes": [kind.__name__ for kind in type(core).__mro__],
        "pair": None if status is None else list(status.pair),
        "is_on": status is not None and status.is_on,
    }


if __name__ == "__main__":
    sys.exit(main())
