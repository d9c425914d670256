"""`treedrift report`: makes the reports of a run from its folder, even of one that was cut off.

The packages that pages, plots and JUnit files are made with are an extra, so that a worker or a
server that only fuzzes does not need them; they are imported when a report is made.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from .harness.events import EVENTS_FILE
from .options import UsageError, err, out
from .reports.markdown import annotations_of, summary
from .reports.run import RunView
from .reports.stream import StreamError, read_events

NEEDED = ("jinja2", "junitparser", "matplotlib", "pandas")
"""What the reports are made with, as imported."""


class MissingReportsError(Exception):
    """The packages that reports are made with are not there; the message says what to install."""


def report(
    folder: Annotated[Path | None, typer.Argument(help="The folder of a run (its --out).")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the page here.")] = None,
    junit: Annotated[Path | None, typer.Option(help="Write the JUnit XML here.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the job summary here.")] = None,
    annotations: Annotated[
        bool, typer.Option("--annotations", help="Print annotations for a CI job too.")
    ] = False,
    drills: Annotated[
        Path | None,
        typer.Option(help="Make the page of a kill table instead: a file of `drills --json`."),
    ] = None,
) -> None:
    """Make the reports of a run: a page, JUnit XML and a job summary, into its folder.

    With --html, --junit or --markdown only the files that these name are made.
    """
    if drills is not None:
        out.print(f"{_write_kills(drills, html)}", highlight=False)
        return
    if folder is None:
        raise UsageError("name the folder of a run, as in: treedrift report build/findings")
    run = read_run(folder)
    chosen = {"html": html, "junit": junit, "markdown": markdown}
    wanted = {name: path for name, path in chosen.items() if path is not None}
    for line in annotations_of(run) if annotations else ():
        out.print(line, highlight=False)
    for path in _write(run, wanted or _usual(folder)):
        out.print(f"{path}", highlight=False)


def write_all(folder: Path) -> list[Path]:
    """Write the reports of a run into its folder, and say where: what a campaign ends with.

    Without the extra that is the job summary alone, and one line that says what to install.
    Raises `UsageError` for a folder without a stream.
    """
    wanted = _usual(folder)
    try:
        check_packages()
    except MissingReportsError as error:
        err.print(f"no page and no JUnit XML: {error}", style="yellow", highlight=False)
        wanted = {"markdown": wanted["markdown"]}
    return _write(read_run(folder), wanted)


def _usual(folder: Path) -> dict[str, Path]:
    return {name: folder / file for name, (file, _) in WRITERS.items()}


def read_run(folder: Path) -> RunView:
    """The run of a folder. Raises `UsageError`."""
    path = folder / EVENTS_FILE
    if not path.exists():
        what = "is no folder" if not folder.is_dir() else f"has no {EVENTS_FILE}"
        raise UsageError(f"{folder} {what}; give the --out folder of a fuzz or check run")
    try:
        return RunView.from_events(read_events(path), folder)
    except StreamError as error:
        raise UsageError(str(error)) from error


def _write(run: RunView, wanted: dict[str, Path]) -> list[Path]:
    if wanted.keys() - {"markdown"}:
        check_packages()
    for name, path in wanted.items():
        _put(path, WRITERS[name][1](run))
    return list(wanted.values())


def _write_kills(file: Path, html: Path | None) -> Path:
    """Write the page of a kill table, beside its file unless it is told where."""
    check_packages()
    from .reports.drills import KillsError, kills_page, read_kills

    path = file.with_suffix(".html") if html is None else html
    try:
        _put(path, kills_page(read_kills(file)))
    except KillsError as error:
        raise UsageError(str(error)) from error
    return path


def _put(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"{path}: can't be written: {reason}; name another file") from error


def check_packages() -> None:
    """Raise `MissingReportsError` unless everything is there that reports are made with."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise MissingReportsError(
            f'reports need {", ".join(missing)}: pip install "treedrift[reports]"'
        )


def _page(run: RunView) -> str:
    from .reports.html import page

    return page(run)


def _junit(run: RunView) -> str:
    from .reports.junit import junit

    return junit(run)


WRITERS: dict[str, tuple[str, Callable[[RunView], str]]] = {
    "html": ("report.html", _page),
    "junit": ("junit.xml", _junit),
    "markdown": ("summary.md", summary),
}
"""Every report: its option, its file in a run folder, and what makes it."""
