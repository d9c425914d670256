"""`python -m benchmarks`: measures, prints a table and writes `build/bench.json`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from rich.console import Console

from treedrift.harness.lockstep import Lockstep
from treedrift.harness.trace import TraceError

from . import measure
from .arguments import count
from .report import hybrid_rows, log_rows, swarm_row, table_of
from .rows import Row, plain_row, write_rows

ROOT = Path(__file__).resolve().parent.parent
FULL_LOG = ROOT.parent / "shared" / "traces" / "conversation_trace.jsonl"
EXCERPT = ROOT / "corpora" / "seeds" / "mooncake-conversation-40.log"
CORES = ("python", "rust", "sglang-python", "sglang-rust")
HYBRID = ("full", "swa", "mamba")
SWARM_PAIR = ("python", "rust")

TABLE_WIDTH_MIN = 112
"""What the table needs; a pipe would otherwise get it cut to 80 columns."""

out = Console(width=max(Console().width, TABLE_WIDTH_MIN))
err = Console(stderr=True, soft_wrap=True, markup=False)


def main(arguments: list[str]) -> int:
    """Measure what there is. 2 for bad arguments or a bad log, else 0."""
    options = _parser().parse_args(arguments)
    torch.set_num_threads(1)
    log = options.log or (FULL_LOG if FULL_LOG.exists() else EXCERPT)
    cores, missing = measure.open_cores([measure.newest_name(name) for name in options.core])
    for name, why in missing.items():
        err.print(f"left out: {name}: {why}")
    try:
        rows = _log_rows(cores, log, options)
    except TraceError as error:
        err.print(str(error))
        return 2
    finally:
        for lockstep in cores.values():
            lockstep.close()
    if options.swarm_ops and not set(SWARM_PAIR) & set(missing):
        rates = []
        for number in range(options.rounds):
            _tick(f"swarm, round {number + 1}")
            rates.append(measure.swarm_rate(SWARM_PAIR, options.swarm_ops))
        rows.append(swarm_row(SWARM_PAIR, rates))
    write_rows(options.output, rows)
    title = f"{log.name}, {options.requests} requests, {options.rounds} rounds"
    out.print(table_of(rows, title))
    out.print(f"written to {options.output}")
    return 0


def _log_rows(cores: dict[str, Lockstep], log: Path, options: argparse.Namespace) -> list[Row]:
    rows: list[Row] = []
    for page_size in options.page_size:
        config, ops = measure.read_log(log, options.requests, page_size)
        requests = sum(1 for op in ops if type(op).__name__ == "Arrive")
        if not rows:
            rows.append(plain_row("requests of the log", "requests", [float(requests)]))

        def tick(name: str, page_size: int = page_size) -> None:
            _tick(f"page {page_size}, {name}")

        hybrid = measure.read_log(log, options.requests, page_size, HYBRID)
        clients = {name: lockstep.clients[name] for name, lockstep in cores.items()}
        runs: dict[str, measure.Run] = {
            name: (client, config, ops) for name, client in clients.items()
        }
        runs |= {f"hybrid {name}": (client, *hybrid) for name, client in clients.items()}
        times = measure.time_runs(runs, options.rounds, tick)
        floor = measure.time_floor(config, ops, requests, options.rounds)
        rows += log_rows(page_size, {name: times[name] for name in clients}, floor)
        rows += hybrid_rows(
            page_size, {name: (times[f"hybrid {name}"], times[name]) for name in clients}
        )
    return rows


def _tick(what: str) -> None:
    err.print(f"measured: {what}", highlight=False)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    add = parser.add_argument
    add("--requests", type=count, default=400, help="requests of the log (400)")
    add("--log", type=Path, help="a Mooncake request log; default: the conversation log")
    add("--rounds", type=count, default=5, help="runs of every core per page size (5)")
    add("--page-size", type=count, nargs="+", default=[1, 16, 64], help="page sizes (1 16 64)")
    add("--core", nargs="+", default=list(CORES), help="cores to measure")
    add("--swarm-ops", type=int, default=6000, help="ops of a round of the swarm; 0 for none")
    add("--output", type=Path, default=ROOT / "build" / "bench.json", help="where rows go")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
