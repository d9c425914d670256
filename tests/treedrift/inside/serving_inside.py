"""What runs inside an environment with SGLang: its own cache serves random lives and a log.

`serving_inside.py THEME OUTPUT`: one theme of the tests, its results into a JSON file. A process
does many runs, since SGLang takes seconds to import.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import torch

from benchmarks.serving.contestants import entered
from benchmarks.serving.lives import live
from benchmarks.serving.pools import build_cache, build_params, prepare_process
from benchmarks.serving.running import report_of
from benchmarks.serving.setting import Setting

TREES = (("full",), ("full", "swa"), ("full", "mamba"), ("full", "swa", "mamba"))
POLICIES = ("lru", "lfu", "fifo", "mru", "filo", "priority", "slru", "tlru")
POLICY_CONFIGS = {"tlru": {"threshold": 60, "next_prompt_estimate": 8}}
REQUESTS = 30
SEEDS = 2
FIRST_TOKEN = 7 * 10**14
"""Where tokens start that must not be found in a trace."""
FAULT_SEED, FAULT_REQUESTS = 1, 40

CORES = ("sglang-python", "sglang-rust", "treedrift-python", "treedrift-rust")
PAIRS = (
    "shadow:sglang-python,treedrift-rust",
    "shadow:sglang-python,treedrift-python",
    "shadow:sglang-rust,sglang-python",
)

FAULTS: dict[str, dict[str, Any]] = {
    # A drill for the shadow, by the cache that shows it.
    "leaked-slots": {},
    "lost-event": {},
    "lru-by-creation": {},
    "split-drops-lock": {},
    "split-loses-pending-mark": {"linker": True},
    "offload-without-the-window": {"components": ("full", "swa"), "linker": True},
    "count-goes-on-across-a-gap": {"components": ("full", "swa")},
    "window-slots-freed-for-full": {"components": ("full", "swa")},
    "split-moves-state-up": {"components": ("full", "mamba")},
    "refused-state-not-told": {"components": ("full", "mamba"), "page_size": 16},
    "evicted-but-counted": {"components": ("full", "swa", "mamba")},
    "total-of-windows-alone": {"components": ("full", "swa", "mamba")},
}


def settings() -> Iterator[tuple[str, Setting]]:
    """Trees, page sizes and write modes; the eviction policies take turns."""
    number = 0
    for components in TREES:
        for page in (1, 16):
            for linker in (False, True):
                policy = POLICIES[number % len(POLICIES)]
                number += 1
                mode = "linker" if linker else "device only"
                setting = small(
                    components=components,
                    page_size=page,
                    linker=linker,
                    policy=policy,
                    policy_config=POLICY_CONFIGS.get(policy),
                )
                yield f"{','.join(components)}, page {page}, {mode}, {policy}", setting


def small(page_size: int = 1, **more: Any) -> Setting:
    """A cache so small that it evicts all the time."""
    sizes = (
        {"slots": 320, "window": 8, "states": 24}
        if page_size == 1
        else {"slots": 640, "window": 24, "states": 32}
    )
    return Setting(page_size=page_size, row_length=240, events=True, **sizes, **more)


def served(
    core: str, setting: Setting, seed: int, requests: int = REQUESTS, first_token: int = 0
) -> dict[str, Any]:
    """One life on one core: what the server saw, and what the shadow says, if there is one."""
    with entered(core) as backend:
        given = msgspec.structs.replace(setting, core=backend)
        scheduler = live(given, seed, requests, first_token)
        # Evicts what is left, with the shadow still watching.
        report = report_of(scheduler, 0.0)
        status = getattr(scheduler.cache.tree_core, "treedrift_status", None)
    store = scheduler.store
    return {
        "core": core,
        "seen": report.seen(),
        "loads": 0 if store is None else store.loads,
        "status": msgspec.to_builtins(status),
    }


def lives(cores: tuple[str, ...]) -> list[dict[str, Any]]:
    """Every life of the settings on each of the cores."""
    found = []
    for number, (name, setting) in enumerate(settings()):
        for seed in range(number * SEEDS, (number + 1) * SEEDS):
            given = msgspec.structs.replace(
                setting,
                early_release=bool(seed % 2),
                bigram=seed % 8 in (3, 4),
                dynamo_events=seed % 8 in (5, 6),
            )
            runs = [served(core, given, seed) for core in cores]
            found.append({"life": f"{name}, seed {seed}", "runs": runs})
    return found


def drop_ins() -> Any:
    return lives(CORES)


def shadows() -> Any:
    os.environ["TREEDRIFT_SHADOW_MODE"] = "strict"
    return lives(("sglang-python", *PAIRS))


def faults() -> Any:
    """Drills in the shadow of SGLang's Python core, and the same lives without."""
    os.environ["TREEDRIFT_TRACE_DIR"] = str(Path.cwd() / "traces")
    os.environ["TREEDRIFT_TRACE_FILES"] = "64"
    found = {}
    for drill, more in FAULTS.items():
        runs = [
            served(core, small(**more), FAULT_SEED, FAULT_REQUESTS, FIRST_TOKEN)
            for core in ("sglang-python", f"shadow:sglang-python,drill:{drill}")
        ]
        found[drill] = {"life": drill, "runs": runs}
    return found


def recorded() -> Any:
    """Lives that are recorded, their tokens in a range of their own, and the same without."""
    found = []
    for number, (core, components) in enumerate(zip(CORES, TREES, strict=True)):
        os.environ["TREEDRIFT_TRACE_DIR"] = str(Path.cwd() / "records" / str(number))
        setting = small(components=components, page_size=(1, 16)[number % 2], linker=number > 1)
        runs = [
            served(name, setting, number, REQUESTS, FIRST_TOKEN)
            for name in (core, f"record:{core}")
        ]
        found.append({"life": f"{core}, {','.join(components)}", "runs": runs})
    return found


def refusals() -> Any:
    """What our cores don't have: the class that serves instead, or the error; and the log."""
    prepare_process()
    from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
    from sglang.srt.mem_cache.unified_cache.components import FullComponent
    from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

    # Types stop at SGLang, which has none that reach this environment.
    class Foreign(FullComponent):  # type: ignore[misc]
        """A component of somebody else's."""

    given: dict[str, dict[str, Any]] = {
        "sessions": {"enable_session_radix_cache": True},
        "foreign components": {"component_registry_override": {ComponentType.FULL: Foreign}},
    }
    found = {}
    for core in ("treedrift-python", "treedrift-rust"):
        setting = Setting(core=core)
        for what, fields in given.items():
            params = build_params(setting)
            for field, value in fields.items():
                setattr(params, field, value)
            cache = UnifiedRadixCache(params)
            found[f"{core}, {what}"] = type(cache.tree_core).__name__
        cache = build_cache(setting)
        found[f"{core}, nothing special"] = type(cache.tree_core).__name__
        found[f"{core}, host tier"] = _host_tier(cache, setting)
    return found


def _host_tier(cache: Any, setting: Setting) -> str:
    """What attaching a host tier to the cache raises."""
    from sglang.srt.mem_cache.pool_host import common
    from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler

    common.ALLOC_MEMORY_FUNCS["cpu"] = lambda dims, dtype, **_: torch.zeros(dims, dtype=dtype)
    given = ServerArgs(
        model_path="dummy",
        device="cpu",
        page_size=setting.page_size,
        hicache_io_backend="direct",
        hicache_mem_layout="page_first_direct",
    )
    set_global_server_args_for_scheduler(given)
    try:
        cache.init_hicache(given, build_params(setting))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "attached"


THEMES = {each.__name__: each for each in (drop_ins, shadows, faults, recorded, refusals)}


def main() -> None:
    torch.set_num_threads(1)
    theme, output = sys.argv[1:]
    logging.basicConfig(level=logging.WARNING)
    Path(output).write_text(json.dumps(THEMES[theme](), default=str))


if __name__ == "__main__":
    main()
