"""Runs a log or a life through a cache, and reports it as figures and digests."""

from __future__ import annotations

import argparse
import gc
from collections.abc import Sequence
from time import perf_counter

import msgspec

from treedrift.harness.importers.mooncake import LogEntry

from .log import asks_of, longest, serve
from .scheduler import Figures, Scheduler
from .setting import Setting


class Freed(msgspec.Struct):
    """Frees of one pool: how many there were, and a digest of their slots in order."""

    count: int
    digest: str


class Report(msgspec.Struct, kw_only=True):
    """One run. Digests and figures of two cores are equal if a server sees no difference.

    `free` are free slots at the end by pool, `left` those that are missing after everything was
    evicted: none, unless somebody lost slots. Times are seconds: of the run, in the cache's calls,
    in the core's calls as the cache makes them.
    """

    core: str
    core_class: str
    setting: Setting
    figures: Figures
    hits: str
    evictions: dict[str, Freed]
    evicted_slots: int
    frees: dict[str, Freed]
    free: dict[str, int]
    left: dict[str, int]
    digest: str
    wall_s: float
    cache_s: float
    core_s: float
    core_calls: int

    def seen(self) -> dict[str, object]:
        """What has to be equal, by name."""
        names = ("figures", "hits", "evictions", "frees", "free", "left", "digest")
        return {name: msgspec.to_builtins(getattr(self, name)) for name in names}


def setting_for(entries: Sequence[LogEntry], options: argparse.Namespace) -> Setting:
    """The cache that a log runs through, as the command's options say."""
    page = options.page_size
    return Setting(
        components=options.components,
        page_size=page,
        slots=options.slots // page * page,
        window=options.window,
        window_interval=128,
        states=options.states,
        state_grid=64,
        rows=options.rows,
        # A page more than the longest request has.
        row_length=longest(entries, options.output_tokens) + page,
        chunk=options.chunk,
        policy=options.policy,
        events=options.events,
    )


def run_log(
    setting: Setting, entries: Sequence[LogEntry], first_token: int, output_max: int
) -> Report:
    """Serve all requests of a log from a new cache."""
    scheduler = Scheduler(setting)
    gc.collect()
    started = perf_counter()
    serve(scheduler, asks_of(entries, first_token, output_max))
    return report_of(scheduler, perf_counter() - started)


def report_of(scheduler: Scheduler, wall_s: float) -> Report:
    """The figures of a scheduler whose requests have all ended; evicts what is left."""
    ledger, setting = scheduler.ledger, scheduler.setting
    times = ledger.cache_clock.total, ledger.core_clock.total, ledger.core_clock.calls
    free = scheduler.free_slots()
    scheduler.evict_all()
    ledger.note_frees()
    sizes = {"full": setting.slots, "swa": setting.slots, "mamba": setting.states}
    core = scheduler.cache.tree_core
    return Report(
        core=setting.core or "",
        core_class=f"{type(core).__module__}.{type(core).__qualname__}",
        setting=setting,
        figures=scheduler.figures,
        hits=ledger.hits.hex(),
        evictions={name: Freed(each.count, each.hex()) for name, each in ledger.evictions.items()},
        evicted_slots=ledger.evicted_slots,
        frees={name: Freed(each.count, each.hex()) for name, each in ledger.frees.items()},
        free=free,
        left={name: sizes[name] - size for name, size in scheduler.free_slots().items()},
        digest=ledger.all.hex(),
        wall_s=wall_s,
        cache_s=times[0] / 1e9,
        core_s=times[1] / 1e9,
        core_calls=times[2],
    )
