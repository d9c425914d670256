"""Environment variables: defaults, values, and what is said about wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from treedrift.inside.variables import VARIABLES, VariableError, read_settings


def test_an_environment_without_variables_gives_the_defaults_of_the_table() -> None:
    settings = read_settings({})
    assert (settings.first, settings.second) == ("sglang-rust", "treedrift-python")
    assert (settings.strict, settings.sample, settings.sizes_every) == (False, 1.0, 1)
    assert (settings.record_core, settings.trace_dir) == ("sglang-rust", None)
    assert (settings.trace_files, settings.trace_bytes) == (8, 64 * 2**20)
    assert settings.pseudonyms


def test_an_empty_variable_counts_as_none() -> None:
    assert read_settings({variable.name: " " for variable in VARIABLES}) == read_settings({})


def test_every_variable_is_read(tmp_path: Path) -> None:
    settings = read_settings(
        {
            "TREEDRIFT_SHADOW_FIRST": "treedrift-rust",
            "TREEDRIFT_SHADOW_SECOND": "drill:leaked-slots",
            "TREEDRIFT_SHADOW_MODE": "strict",
            "TREEDRIFT_SHADOW_SAMPLE": "0.25",
            "TREEDRIFT_SHADOW_SIZES_EVERY": "100",
            "TREEDRIFT_RECORD_CORE": "sglang-python",
            "TREEDRIFT_TRACE_DIR": str(tmp_path / "new"),
            "TREEDRIFT_TRACE_FILES": "3",
            "TREEDRIFT_TRACE_MIB": "2",
            "TREEDRIFT_TRACE_TOKENS": "plain",
        }
    )
    assert (settings.first, settings.second) == ("treedrift-rust", "drill:leaked-slots")
    assert (settings.strict, settings.sample, settings.sizes_every) == (True, 0.25, 100)
    assert (settings.record_core, settings.trace_dir) == ("sglang-python", tmp_path / "new")
    assert (settings.trace_files, settings.trace_bytes) == (3, 2 * 2**20)
    assert not settings.pseudonyms


def test_a_folder_is_meant_from_where_the_server_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_settings({"TREEDRIFT_TRACE_DIR": "traces"}).trace_dir == tmp_path / "traces"


WRONG = {
    ("TREEDRIFT_SHADOW_FIRST", "python"): "say whose core: sglang-python or treedrift-python",
    ("TREEDRIFT_SHADOW_FIRST", "drill:leaked-slots"): "must be one of sglang-python, sglang-rust, "
    "treedrift-python, treedrift-rust",
    ("TREEDRIFT_SHADOW_FIRST", "sglang-rst"): "did you mean sglang-rust?",
    ("TREEDRIFT_SHADOW_SECOND", "rust"): "say whose core: sglang-rust or treedrift-rust",
    ("TREEDRIFT_SHADOW_SECOND", "sglang-rust@0.5.23"): "leave out the @ part",
    ("TREEDRIFT_SHADOW_SECOND", "treedrift-rst"): "did you mean treedrift-rust?",
    ("TREEDRIFT_SHADOW_MODE", "Strict"): "must be one of warn, strict",
    ("TREEDRIFT_SHADOW_SAMPLE", "10%"): "must be a number from 0 to 1",
    ("TREEDRIFT_SHADOW_SAMPLE", "nan"): "must be a number from 0 to 1",
    ("TREEDRIFT_SHADOW_SIZES_EVERY", "0"): "must be a whole number from 1 to",
    ("TREEDRIFT_RECORD_CORE", "treedrift-shadow"): "must be one of sglang-python",
    ("TREEDRIFT_TRACE_DIR", __file__): "must be a folder, and a file is there",
    ("TREEDRIFT_TRACE_DIR", "~nobody-of-this-name/traces"): "must be a path to a folder",
    ("TREEDRIFT_TRACE_DIR", "x" * 5000): "must be a path to a folder",
    ("TREEDRIFT_TRACE_FILES", "many"): "must be a whole number from 1 to",
    ("TREEDRIFT_TRACE_MIB", "9" * 5000): "must be a whole number from 1 to 256",
    ("TREEDRIFT_TRACE_TOKENS", "hashed"): "must be one of pseudonyms, plain",
    ("TREEDRIFT_SHADOW_SECOND_CORE", "x"): "no such variable; did you mean TREEDRIFT_SHADOW_SECOND",
}


@pytest.mark.parametrize(("name", "value"), WRONG, ids=lambda text: text[:40].rpartition("/")[2])
def test_a_wrong_value_is_named_with_what_is_allowed(name: str, value: str) -> None:
    with pytest.raises(VariableError) as error:
        read_settings({name: value})
    assert f"{name}={value!r}: " in str(error.value)
    assert WRONG[name, value] in str(error.value)
