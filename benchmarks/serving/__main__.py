"""`python -m benchmarks.serving`: a request log through SGLang's cache; one JSON line a run.

It needs an environment with SGLang. Several cores take turns, round after round.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec
import torch

from treedrift.harness.importers.mooncake import read_log
from treedrift.harness.trace import TraceError

from ..arguments import count
from .contestants import CHOSEN, entered
from .running import run_log, setting_for
from .setting import COMPONENTS


def main(arguments: list[str]) -> int:
    """Run the log. 2 for bad arguments or a bad log, else 0."""
    options = parser_of_runs("python -m benchmarks.serving", __doc__).parse_args(arguments)
    torch.set_num_threads(1)
    try:
        entries = read_log(options.log, options.requests)
    except TraceError as error:
        print(error, file=sys.stderr)
        return 2
    setting = setting_for(entries, options)
    for number in range(options.rounds):
        shift = number % len(options.core)
        for name in options.core[shift:] + options.core[:shift]:
            with entered(name) as backend:
                given = msgspec.structs.replace(setting, core=backend)
                report = run_log(given, entries, options.first_token, options.output_tokens)
            report.core = name
            print(msgspec.json.encode(report).decode(), flush=True)
    return 0


def parser_of_runs(program: str, about: str | None) -> argparse.ArgumentParser:
    """Arguments that say what is run: the log, and the caches that it runs through."""
    parser = argparse.ArgumentParser(prog=program, description=about)
    add = parser.add_argument
    add("--log", type=Path, required=True, help="a Mooncake request log")
    add("--requests", type=count, default=3000, help="requests of the log (3000)")
    add(
        "--core",
        nargs="+",
        default=[CHOSEN],
        help="sglang-python, sglang-rust, treedrift-python, treedrift-rust, shadow:FIRST,SECOND,"
        " record:CORE, another backend's name, or chosen, which leaves it to SGLang's variable",
    )
    add("--rounds", type=count, default=1, help="runs of every core (1)")
    add("--components", type=_components, default=("full",), help="as in full,swa,mamba (full)")
    add("--page-size", type=count, default=16, help="tokens of a page (16)")
    add("--slots", type=count, default=2**18, help="tokens of the pool (262144)")
    add("--window", type=count, default=1024, help="tokens of the window (1024)")
    add("--states", type=count, default=512, help="slots for states (512)")
    add("--rows", type=count, default=8, help="requests that run at a time (8)")
    add("--chunk", type=count, default=8192, help="tokens of prompts in one step (8192)")
    add("--output-tokens", type=count, default=8, help="at most so many tokens of an output (8)")
    add("--first-token", type=int, default=0, help="added to every token (0)")
    add("--policy", default="lru", help="eviction policy (lru)")
    add("--events", action="store_true", help="record the cache's events as well")
    return parser


def _components(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if names[0] != "full" or not set(names) <= set(COMPONENTS):
        raise argparse.ArgumentTypeError(f"full first, then swa and mamba; got {text}")
    return names


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
