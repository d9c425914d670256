"""The command line.

It turns arguments into plans, runs them, and turns what comes back into exit codes. Errors of the
user's world (bad input, a missing core) are one line that says what to do; `main` is the only
place that ends the process.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from . import corpus_command, report_command
from .backends.registry import BackendError, UnavailableBackendError, UnknownBackendError
from .backends.sglang.environments import EnvironmentsError, MissingEnvironmentError
from .campaign_command import check, fuzz, report
from .drills_command import drills
from .harness.exit_codes import ExitCode
from .harness.remote import RemoteError, WorkerFailure
from .harness.side import HarnessError
from .harness.trace import TraceError
from .models.hypothesis_engine import MissingHypothesisError
from .models.profiles import UnknownProfileError
from .options import (
    DeviceOption,
    JsonOption,
    PairOption,
    UsageError,
    err,
    out,
    parse_pairs,
)
from .reports.stream import StreamError
from .repro import repro
from .run_log import RunLog
from .showing import show
from .shrink_command import shrink

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Find semantic drift between implementations of SGLang's TreeCore.",
)


app.command()(check)
app.command()(fuzz)
app.command("report")(report_command.report)
app.add_typer(corpus_command.app, name="corpus")
app.command()(shrink)
app.command()(drills)
app.command()(show)
app.command()(repro)


@app.command()
def replay(
    paths: Annotated[list[Path], typer.Argument(help="Traces, or folders of traces.")],
    pair: PairOption = None,
    device: DeviceOption = "cpu",
    json_: JsonOption = False,
) -> None:
    """Replay saved traces on any pair; without --pair on the pair that each was saved for."""
    from .replaying import replay_files

    log = RunLog(None)
    found = replay_files(paths, parse_pairs(pair) if pair else None, log, device)
    if not found.traces:
        raise UsageError("no trace was replayed; leave --pair out, or name python,rust")
    log.finish(found.interrupted)
    raise typer.Exit(report(log, json_, found.pairs, is_campaign=False))


@app.command("import")
def import_log(
    path: Annotated[Path, typer.Argument(help="A Mooncake request log (JSON lines).")],
    output: Annotated[Path, typer.Option("--out", "-o", help="The trace to write.")],
    limit: Annotated[int | None, typer.Option(min=1, help="Take so many requests.")] = None,
    page_size: Annotated[int, typer.Option(min=1, help="Page size of the tree.")] = 16,
    capacity: Annotated[int, typer.Option(min=1, help="Device slots.")] = 2**20,
    concurrency: Annotated[int, typer.Option(min=1, help="Requests that run at a time.")] = 4,
    chunk: Annotated[int, typer.Option(min=1, help="Prompt tokens prefilled at once.")] = 8192,
    policy: Annotated[str, typer.Option(help="Eviction policy.")] = "lru",
    events: Annotated[bool, typer.Option("--events/--no-events", help="Record KV events.")] = False,
    components: Annotated[
        str, typer.Option(help="Components of the tree, as in full,swa,mamba.")
    ] = "full",
    window: Annotated[int, typer.Option(min=1, help="Tokens of a sliding window.")] = 1024,
    states: Annotated[int, typer.Option(min=1, help="Mamba state slots.")] = 1024,
    force: Annotated[bool, typer.Option(help="Overwrite the trace if it is there.")] = False,
) -> None:
    """Turn a real request log into a trace that `replay` runs on any pair."""
    from .harness.importers.mooncake import ImportOptions, import_mooncake
    from .harness.trace import new_trace, write_trace

    options = ImportOptions(
        limit=limit,
        page_size=page_size,
        capacity=capacity,
        concurrency=concurrency,
        chunk=chunk,
        policy=policy,
        events=events,
        components=tuple(components.split(",")),
        window=window,
        states=states,
    )
    try:
        config, trace_ops = import_mooncake(path, options)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    trace = new_trace(config, list(trace_ops), source=f"mooncake log {path.name}")
    write_trace(output, trace, overwrite=force)
    out.print(f"{output}: {len(trace.ops):,} ops; run it with: treedrift replay {output}")


@app.command()
def backends(json_: JsonOption = False) -> None:
    """List the cores that are known here, and why one can't be used."""
    from .backends.registry import list_backends

    found = list_backends()
    if json_:
        rows = [
            {
                "name": one.name,
                "available": one.is_available,
                "inspect": one.can_inspect,
                "why": one.why,
            }
            for one in found
        ]
        sys.stdout.write(json.dumps({"backends": rows}) + "\n")
        return
    for one in found:
        state = "available" if one.is_available else "missing"
        extra = ", can be inspected" if one.can_inspect else ""
        out.print(f"{one.name:28} {state}{extra}: {one.why}", highlight=False)


environments_app = typer.Typer(
    no_args_is_help=True, help="Manage environments of released SGLangs."
)
app.add_typer(environments_app, name="env")


@environments_app.command("add")
def env_add(requirement: Annotated[str, typer.Argument(help="As in sglang==0.5.23.")]) -> None:
    """Install a released SGLang in an environment of its own."""
    from .backends.sglang import environments

    added = environments.add(requirement, lambda line: err.print(line, highlight=False))
    out.print(f"sglang {added.release} is ready: --pair python,sglang-python@{added.release}")


@environments_app.command("list")
def env_list() -> None:
    """List the environments."""
    from .backends.sglang import environments

    found = environments.environments()
    for one in found:
        out.print(
            f"{one.release}  torch {one.torch}  python {one.python}  {one.interpreter}",
            highlight=False,
        )
    if not found:
        out.print("no environments; add one with: treedrift env add sglang==0.5.23")


@environments_app.command("remove")
def env_remove(
    name: Annotated[str, typer.Argument(help="A release or an environment's name.")],
) -> None:
    """Remove an environment."""
    from .backends.sglang import environments

    environments.remove(name)
    out.print(f"removed {name}")


# --- Ending -------------------------------------------------------------------------------


@contextmanager
def _errors_as_exit_codes() -> Iterator[None]:
    """Turn errors of the user's world into one line and the exit code that belongs to them."""
    try:
        yield
    except (UsageError, TraceError, StreamError, UnknownBackendError, UnknownProfileError) as error:
        _fail(ExitCode.USAGE, error)
    except (
        UnavailableBackendError,
        MissingEnvironmentError,
        EnvironmentsError,
        MissingHypothesisError,
        report_command.MissingReportsError,
    ) as error:
        _fail(ExitCode.MISSING, error)
    except BackendError as error:
        _fail(ExitCode.MISSING, error)
    except KeyboardInterrupt:
        _fail(ExitCode.INTERRUPTED, "interrupted")
    except (HarnessError, RemoteError, WorkerFailure) as error:
        _fail(ExitCode.HARNESS, f"the harness failed: {error}")
    except Exception as error:
        # Nobody foresaw this one, so whoever repairs it needs the way that led here.
        traceback.print_exc()
        _fail(ExitCode.HARNESS, f"the harness failed: {error!r}")


def _fail(code: ExitCode, error: object) -> NoReturn:
    err.print(f"treedrift: {error}", style="red", highlight=False, markup=False)
    raise SystemExit(int(code))


def main(arguments: list[str] | None = None) -> Any:
    """Run the command and end the process with its exit code."""
    with _errors_as_exit_codes():
        try:
            code = app(args=arguments, standalone_mode=False)
        except typer.Exit as done:
            code = done.exit_code
        except Exception as error:
            code = _usage_error(error)
    raise SystemExit(int(code or 0))


def _usage_error(error: Exception) -> int:
    """Errors of the argument parser carry their own message and code; others go on."""
    if isinstance(error, typer.Abort):
        raise KeyboardInterrupt from error  # What the parser makes of Ctrl-C.
    shown = getattr(error, "show", None)
    if shown is None:
        raise error
    shown()
    return ExitCode.USAGE
