"""The documents say what the code says, and their links lead somewhere."""

from __future__ import annotations

import re
import typing
from pathlib import Path
from typing import Any

import msgspec

from treedrift.harness import corpus, ops
from treedrift.harness.config import Config
from treedrift.harness.exit_codes import ExitCode
from treedrift.harness.ledger import Ledger
from treedrift.harness.trace import Known
from treedrift.inside.plugin import FACTORIES
from treedrift.inside.variables import VARIABLES

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    *sorted(ROOT.glob("*.md")),
    *(
        path
        for folder in ("docs", "tests", "corpora", "benchmarks", "backends")
        for path in sorted((ROOT / folder).rglob("*.md"))
    ),
]
CHANGELOG_SECTIONS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def table(text: str, heading: str) -> list[list[str]]:
    """The cells of the first table under a heading, without its head."""
    section = re.split(r"^#+ ", text.split(f"# {heading}\n", 1)[1], maxsplit=1, flags=re.M)[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def test_every_link_of_a_document_leads_to_a_file() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {target} does not exist"
        for path in DOCUMENTS
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text(encoding="utf-8"))
        if "://" not in target and not (path.parent / target).exists()
    ]
    assert not found, "\n".join(found)


def test_the_index_names_every_document() -> None:
    index = read("docs/README.md")
    docs = ROOT / "docs"
    names = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")} - {"README.md"}
    assert [name for name in sorted(names) if f"({name})" not in index] == []


def test_the_readme_is_short() -> None:
    assert len(read("README.md").split()) < 450


def test_the_table_of_exit_codes_is_that_of_the_code() -> None:
    rows = table(read("docs/exit-codes.md"), "Exit codes")
    assert rows == [[str(int(code)), code.name.lower(), code.meaning] for code in ExitCode]


def documented_ops(heading: str) -> dict[str, list[str]]:
    rows = table(read("docs/op-language.md"), heading)
    return {name.strip("`"): re.findall(r"`(\w+)`", operands) for name, operands, _ in rows}


def real_ops(kinds: Any) -> dict[str, list[str]]:
    return {
        str(kind.__struct_config__.tag): [field.name for field in msgspec.structs.fields(kind)]
        for kind in typing.get_args(kinds)
    }


def test_the_page_on_ops_lists_every_op_with_its_operands() -> None:
    assert documented_ops("Request level") == real_ops(ops.RequestOp)
    assert documented_ops("Core level") == real_ops(ops.CoreOp)


def test_the_page_on_ops_lists_every_question() -> None:
    named = re.findall(r"`(\w+)`", read("docs/op-language.md").split("questions of `ask`: ")[1])
    questions = typing.get_args(ops.Question)
    assert tuple(named[: len(questions)]) == questions


def test_the_page_on_ops_lists_the_configuration_with_its_defaults() -> None:
    rows = table(read("docs/op-language.md"), "Configuration")
    fields = msgspec.to_builtins(Config())
    assert [(name, default) for name, default, _ in rows] == [
        (f"`{name}`", f"`{msgspec.json.encode(value).decode()}`") for name, value in fields.items()
    ]


def test_the_page_on_semantics_lists_every_known_difference() -> None:
    rows = table(read("docs/semantics.md"), "Known differences of `sglang-rust`")
    told = {
        name: rules.split(", ")[0]
        for rules, _, traces in rows
        for name in re.findall(r"`([\w-]+)`", traces)
    }
    known = {
        entry.name: entry.rule
        for entry in Ledger.read(ROOT / "corpora" / "known").entries
        if entry.known.core == "sglang-rust"
    }
    assert told == known


def test_the_page_on_the_corpus_lists_every_verdict_and_field_of_the_ledger() -> None:
    page = read("docs/corpus.md")
    verdicts = [row[0].strip("`") for row in table(page, "Verdicts")]
    assert tuple(verdicts) == typing.get_args(corpus.Kind)
    fields = {row[0].strip("`") for row in table(page, "The ledger")}
    assert fields == {"rule", "note", *(f"known.{name}" for name in Known.__struct_fields__)}


def test_the_page_on_sglang_lists_every_backend_and_variable() -> None:
    page = read("docs/inside-sglang.md")
    backends = [name for row in table(page, "Inside SGLang") for name in row[0].split(", ")]
    assert backends == [f"`{name}`" for name in FACTORIES]
    assert table(page, "Variables") == [
        [f"`{each.name}`", f"`{each.default}`" if each.default else "none", each.meaning]
        for each in VARIABLES
    ]


def test_the_changelog_keeps_its_form() -> None:
    lines = read("CHANGELOG.md").splitlines()
    start = lines.index("## [Unreleased]")
    found = []
    for number, line in enumerate(lines[start + 1 :], start + 2):
        version = re.fullmatch(r"## \[\d+\.\d+\.\d+\] - \d{4}-\d{2}-\d{2}", line)
        section = line.startswith("### ") and line[4:] in CHANGELOG_SECTIONS
        entry = re.fullmatch(r"- [A-Z`].*\.", line)
        if line and not (version or section or entry or line.startswith("  ")):
            found.append(f"CHANGELOG.md:{number}: neither a version, a section nor an entry")
    assert not found, "\n".join(found)


def test_every_decision_keeps_its_form() -> None:
    wanted = ["Context", "Choice", "Rejected", "What would change our mind"]
    for path in sorted((ROOT / "docs/decisions").glob("*.md")):
        text = path.read_text(encoding="utf-8")
        assert re.fullmatch(r"\d{4}-[a-z0-9-]+\.md", path.name), path.name
        number = int(path.name[:4])
        assert re.match(rf"# {number}\. .+\n\n\d{{4}}-\d{{2}}-\d{{2}}\n", text), path.name
        headings = re.findall(r"^## (.+)$", text, flags=re.M)
        assert [heading for heading in headings if heading in wanted] == wanted, path.name


def test_every_job_that_a_document_names_exists() -> None:
    jobs = set(re.findall(r"^([a-z-]+):", read("Makefile"), flags=re.M))
    found = [
        f"{path.relative_to(ROOT)}: make {job}"
        for path in DOCUMENTS
        for job in re.findall(r"(?:`|\$ )make ([a-z-]+)", path.read_text(encoding="utf-8"))
        if job not in jobs
    ]
    assert not found, "\n".join(found)


def test_every_job_for_people_has_one_line_of_help() -> None:
    makefile = read("Makefile")
    jobs = re.findall(r"^\.PHONY: ([a-z-]+)$", makefile, flags=re.M)
    helped = re.findall(r"^([a-z-]+):.* ## \S", makefile, flags=re.M)
    assert sorted(helped) == sorted(set(jobs) - {"toolchain"})
