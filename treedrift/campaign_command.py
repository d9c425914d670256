"""`treedrift check` and `treedrift fuzz`: a campaign from its arguments to its reports."""

from __future__ import annotations

import json
import platform
import shlex
import sys
from collections.abc import Callable, Sequence
from enum import Enum
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer
from msgspec.structs import replace

from .backends.registry import BackendName, local_backend
from .harness.campaign import Budget
from .harness.events import Event, Started
from .harness.exit_codes import ExitCode
from .harness.ledger import KNOWN_FOLDER, Ledger
from .harness.lockstep import Pair
from .harness.opening import names_of
from .jobs import run_plan
from .models.drills import run_canary
from .options import (
    DeviceOption,
    JobsOption,
    JsonOption,
    PairOption,
    ProfileOption,
    SeedOption,
    UsageError,
    check_folder,
    err,
    out,
    parse_pairs,
    parse_seconds,
    parse_shard,
)
from .replaying import replay_files
from .report_command import write_all
from .reports.progress import ProgressView
from .reports.run import RunView
from .reports.summary import summary_of
from .reports.terminal import print_summary
from .reports.words import plural
from .run_log import RunLog
from .running import Plan, cases_of
from .triage import Options, triage

RUN_FOLDER = Path("build/run")
SAVED = (Path("corpora/seeds"), Path("corpora/regressions"))
CHECK_PROFILES = "full,hybrid"
CHECK_SECONDS = 50.0
CHECK_SHRINK_SECONDS = 10.0
SHRINK_SECONDS = 30.0


class Engine(str, Enum):
    """What makes the ops of a campaign."""

    SWARM = "swarm"
    HYPOTHESIS = "hypothesis"


ShrinkOption = Annotated[
    str | None,
    typer.Option("--shrink", help="Time to shrink each kind, as in 30s; 0 leaves it as found."),
]
OutOption = Annotated[
    Path, typer.Option("--out", help="Folder of the run: its events, traces and reports.")
]
KnownOption = Annotated[
    Path, typer.Option("--known", help="Folder of known differences, the ledger.")
]


def check(
    pair: PairOption = None,
    seed: SeedOption = 1,
    profile: ProfileOption = CHECK_PROFILES,
    time: Annotated[str | None, typer.Option(help="How long, as in 50s.")] = None,
    jobs: JobsOption = 2,
    shrink: ShrinkOption = None,
    out_folder: OutOption = RUN_FOLDER,
    known: KnownOption = KNOWN_FOLDER,
    json_: JsonOption = False,
) -> None:
    """Compare two cores for about a minute: saved traces first, then random ones."""
    plan = Plan(
        pairs=parse_pairs(pair),
        profile=profile,
        seed=seed,
        budget=Budget(seconds=_or(parse_seconds(time), CHECK_SECONDS)),
        jobs=jobs,
    )
    options = _options(_or(parse_seconds(shrink, "--shrink"), CHECK_SHRINK_SECONDS), known)
    saved = [folder for folder in SAVED if folder.is_dir()]
    raise typer.Exit(_run_fresh(plan, options, out_folder, json_, saved))


def fuzz(
    engine: Annotated[Engine, typer.Option(help="What makes the ops.")] = Engine.SWARM,
    pair: PairOption = None,
    seed: SeedOption = 1,
    profile: ProfileOption = "full",
    ops: Annotated[int | None, typer.Option(min=1, help="Stop after so many ops.")] = None,
    time: Annotated[str | None, typer.Option(help="Stop after 90s, 10m, 2h.")] = None,
    jobs: JobsOption = 1,
    shard: Annotated[
        str | None,
        typer.Option(help="Run one part of the campaign's cases, as in 2/8.", metavar="K/N"),
    ] = None,
    device: DeviceOption = "cpu",
    shrink: ShrinkOption = None,
    out_folder: OutOption = RUN_FOLDER,
    known: KnownOption = KNOWN_FOLDER,
    resume: Annotated[
        Path | None,
        typer.Option(help="Go on with the run of this folder; all else is taken from there."),
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Drive random operation sequences through pairs of cores until a budget is spent."""
    shrink_seconds = _or(parse_seconds(shrink, "--shrink"), SHRINK_SECONDS)
    if resume is not None:
        raise typer.Exit(_run_resumed(resume, ops, parse_seconds(time), known, json_))
    if ops is None and time is None:
        raise UsageError("give --ops or --time, so that the campaign ends")
    plan = Plan(
        pairs=parse_pairs(pair),
        profile=profile,
        engine=engine.value,
        seed=seed,
        budget=Budget(ops, parse_seconds(time)),
        jobs=jobs,
        shard=parse_shard(shard),
        device=device,
    )
    raise typer.Exit(_run_fresh(plan, _options(shrink_seconds, known), out_folder, json_))


def _or(given: float | None, usual: float) -> float:
    return usual if given is None else given


def _options(shrink_seconds: float, known: Path) -> Options:
    return Options(shrink_seconds=shrink_seconds, ledger=Ledger.read(known))


# --- Running ------------------------------------------------------------------------------


def _run_fresh(
    plan: Plan, options: Options, folder: Path, json_: bool, saved: list[Path] | None = None
) -> int:
    cases_of(plan, 0)  # Refuses what can't be made before anything is written.
    check_folder(folder)
    started = _started(plan, options)
    with RunLog.fresh(folder) as log:
        log.tell(started)
        log.tell(run_canary())
        interrupted = bool(saved) and _replay_saved(saved or [], plan, log, json_)
        return _run(log, plan, options, interrupted, json_)


def _replay_saved(saved: list[Path], plan: Plan, log: RunLog, json_: bool) -> bool:
    """Replay saved traces; returns whether Ctrl-C ended it."""
    replayed = replay_files(saved, plan.pairs, log)
    if not (json_ or replayed.interrupted or log.standing.kinds):
        out.print(f"{replayed.traces} saved traces agree")
    return replayed.interrupted


def _run_resumed(
    folder: Path, ops: int | None, seconds: float | None, known: Path, json_: bool
) -> int:
    with RunLog.resumed(folder) as log:
        started = next((event for event in log.events if isinstance(event, Started)), None)
        if started is None:
            raise UsageError(f"--resume {folder}: its run had not begun; start it anew")
        plan = Plan(
            pairs=tuple(started.pairs),
            profile=started.profile,
            engine=started.engine,
            seed=started.seed,
            # A run that is given a budget is made longer; the first one's still counts else.
            budget=Budget(ops or started.ops, seconds or started.seconds),
            jobs=started.jobs,
            shard=started.shard,
            device=started.device,
        )
        options = _options(started.shrink_seconds, known)
        log.tell(_started(plan, options))
        log.tell(run_canary())
        return _run(log, plan, options, False, json_)


def _started(plan: Plan, options: Options) -> Started:
    return Started(
        pairs=list(plan.pairs),
        profile=plan.profile,
        engine=plan.engine,
        seed=plan.seed,
        jobs=plan.jobs,
        shard=plan.shard,
        ops=plan.budget.ops,
        seconds=plan.budget.seconds,
        device=plan.device,
        shrink_seconds=options.shrink_seconds,
        versions=_versions(plan),
        command=shlex.join(["treedrift", *sys.argv[1:]]),
    )


def _versions(plan: Plan) -> dict[str, str]:
    """What a run depends on: this program, and the release behind every core that has one.

    Raises the registry's error for a core that can't be used, before anything is written.
    """
    found = {name: metadata.version(name) for name in ("treedrift", "torch")}
    found["python"] = platform.python_version()
    for name in names_of(plan.pairs):
        parsed = BackendName.parse(name)
        place = parsed.place()
        if place is None:
            local_backend(parsed.name)
        elif place.release:
            found[name] = place.release
    return found


def _run(log: RunLog, plan: Plan, options: Options, interrupted: bool, json_: bool) -> int:
    """Run what is left of a campaign, follow it up, and report it."""
    assert log.folder is not None
    plan = replace(plan, folder=str(log.findings))
    pairs = ", ".join(" against ".join(pair) for pair in plan.pairs)
    err.print(f"seed {plan.seed}, profile {plan.profile}, pairs {pairs}; run folder {log.folder}")
    if not interrupted and not log.standing.is_spent(plan.budget):
        starts = [log.standing.start_of(job) for job in range(plan.jobs)]
        with ProgressView(err, plan.budget).live() as view:
            # Written down before it is shown: what somebody has seen is never lost.
            interrupted = run_plan(plan, _both(log.tell, view), starts)
    if not interrupted:
        if log.standing.kinds and options.shrink_seconds:
            kinds = plural(len(log.standing.kinds), "kind")
            each = f"at most {options.shrink_seconds:g} s each"
            err.print(f"shrinking and explaining {kinds}, {each}", highlight=False)
        try:
            triage(log, options, lambda said: err.print(said, highlight=False))
        except KeyboardInterrupt:
            interrupted = True
    log.finish(interrupted)
    code = report(log, json_)
    written = write_all(log.folder)
    if not json_:
        beside = " and ".join(path.name for path in written[1:])
        out.print(
            f"report: {written[0]}" + (f", beside it {beside}" if beside else ""), highlight=False
        )
        if interrupted:
            out.print(f"go on with: treedrift fuzz --resume {log.folder}", highlight=False)
    return code


def _both(one: Callable[[Event], None], other: Callable[[Event], None]) -> Callable[[Event], None]:
    def tell(event: Event) -> None:
        one(event)
        other(event)

    return tell


# --- Telling ------------------------------------------------------------------------------


def report(log: RunLog, json_: bool, pairs: Sequence[Pair] = (), is_campaign: bool = True) -> int:
    """Print what a run gave and return its exit code. `pairs` were compared besides its own."""
    view = RunView.from_events(log.events)
    view.pairs += [pair for pair in pairs if pair not in view.pairs]
    if json_:
        sys.stdout.write(json.dumps(summary_of(view), default=str) + "\n")
    else:
        print_summary(out, view, is_campaign)
    if view.standing == "blind":
        return ExitCode.HARNESS
    if view.new:
        return ExitCode.DIVERGENCE
    return ExitCode.INTERRUPTED if view.is_interrupted else ExitCode.AGREED
