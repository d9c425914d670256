"""Form of the whole repository: what review should not have to look for.

Every finding is printed as `path:line: what is wrong`. Limits with exceptions are ratchets: an
exception names its reason and must go when it is no longer needed.
"""

from __future__ import annotations

import ast
import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
GENERATED = {"build", "dist", "target", "__pycache__"}

FILE_LINES_MAX = 600
LONG_FILES: dict[str, str] = {}
"""Files over the limit, each with the reason why it stays whole."""

FUNCTION_LINES_MAX = 70
LONG_FUNCTIONS: dict[str, str] = {}
"""Functions over the limit, as `path:name`, each with the reason why it stays whole."""

BANNED = [
    (re.compile(r"\b(TODO|FIXME|XXX|HACK)\b"), "do it, or leave it out"),
    (re.compile(r"(?<![\w.])/(root|home|work|tmp|Users)/"), "a path of one machine"),
    (re.compile(r"\b(pypi\.org|pythonhosted\.org|crates\.io)\b"), "the host of a registry"),
]
BANNED_IN = {".py", ".rs", ".md", ".toml", ".pyi", ".json", ""}


def files(*suffixes: str) -> Iterator[Path]:
    """All files of the repository with these suffixes, the links of the rooms not followed."""
    for folder, folders, names in os.walk(ROOT):
        hidden = {name for name in folders if name.startswith(".") and name != ".ci"}
        folders[:] = sorted(set(folders) - hidden - GENERATED)
        for name in sorted(names):
            path = Path(folder, name)
            if path.suffix in suffixes and not path.is_symlink():
                yield path


def place(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def test_every_python_file_starts_with_a_docstring() -> None:
    found = [
        f"{place(path)}:1: no docstring that says the purpose"
        for path in files(".py")
        if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not found, "\n".join(found)


def test_every_rust_file_starts_with_a_doc_comment() -> None:
    found = [
        f"{place(path)}:1: no //! comment that says the purpose"
        for path in files(".rs")
        if not path.read_text(encoding="utf-8").startswith("//!")
    ]
    assert not found, "\n".join(found)


def test_no_file_holds_a_banned_word() -> None:
    found = [
        f"{place(path)}:{number}: `{match[0]}` is banned: {reason}"
        for path in files(*BANNED_IN)
        if path != Path(__file__) and path.name != "LICENSE"
        for number, line in enumerate(lines_of(path), 1)
        for pattern, reason in BANNED
        if (match := pattern.search(line))
    ]
    assert not found, "\n".join(found)


def test_no_file_is_longer_than_the_limit() -> None:
    lengths = {place(path): len(lines_of(path)) for path in files(".py", ".rs")}
    long = {name for name, length in lengths.items() if length > FILE_LINES_MAX}
    found = [
        f"{name}:{lengths[name]}: split it, the limit is {FILE_LINES_MAX} lines"
        for name in sorted(long - LONG_FILES.keys())
    ]
    stale = [f"{name}: no longer too long" for name in sorted(LONG_FILES.keys() - long)]
    assert not found + stale, "\n".join(found + stale)


def test_no_function_is_longer_than_the_limit() -> None:
    long = {}
    for path in files(".py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > FUNCTION_LINES_MAX:
                    long[f"{place(path)}:{node.name}"] = length
    found = [
        f"{name}: {long[name]} lines, the limit is {FUNCTION_LINES_MAX}"
        for name in sorted(long.keys() - LONG_FUNCTIONS.keys())
    ]
    stale = [f"{name}: no longer too long" for name in sorted(LONG_FUNCTIONS.keys() - long.keys())]
    assert not found + stale, "\n".join(found + stale)


def test_no_two_test_files_share_a_name() -> None:
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


def test_everything_is_imported_through_the_package() -> None:
    rooms = r"(backends|harness|models|reports)"
    pattern = re.compile(rf"^\s*(from|import) {rooms}\b")
    found = [
        f"{place(path)}:{number}: import it as treedrift.{match[2]}"
        for path in files(".py")
        for number, line in enumerate(lines_of(path), 1)
        if (match := pattern.match(line))
    ]
    assert not found, "\n".join(found)
