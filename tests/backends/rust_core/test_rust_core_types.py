"""What type checkers are told of the native module is what was built."""

from __future__ import annotations

import ast
import inspect
from contextlib import nullcontext
from pathlib import Path

import pytest

import treedrift
from treedrift import _rust_core
from treedrift.backends.contract import CacheInitParams
from treedrift.backends.rust_core import RustTreeCore

STUB = Path(treedrift.__file__).with_name("_rust_core.pyi")


def declared() -> dict[str, str | None]:
    """Parameters of each method of the stub with their defaults, as text; None for a property."""
    found: dict[str, str | None] = {}
    (core,) = [part for part in ast.parse(STUB.read_text()).body if isinstance(part, ast.ClassDef)]
    for method in core.body:
        assert isinstance(method, ast.FunctionDef)
        for argument in method.args.args:
            argument.annotation = None
        told = None if method.decorator_list else ast.unparse(method.args)
        found.setdefault(method.name, told)
    return found


def built() -> dict[str, str | None]:
    """The same of the native class."""
    found: dict[str, str | None] = {}
    for name, member in vars(_rust_core.NativeTreeCore).items():
        if inspect.isgetsetdescriptor(member):
            found[name] = None
        elif not name.startswith("__"):
            found[name] = member.__text_signature__.strip("()").removeprefix("$")
    signature = inspect.signature(_rust_core.NativeTreeCore)
    found["__new__"] = f"cls, {str(signature).strip('()')}"
    return found


def test_names_parameters_and_defaults_are_those_of_the_built_module() -> None:
    assert declared() == built()


def test_every_name_of_the_module_is_declared() -> None:
    assert [name for name in vars(_rust_core) if not name.startswith("__")] == ["NativeTreeCore"]


def test_properties_can_be_set_where_the_stub_says_so() -> None:
    methods = [
        one for one in ast.walk(ast.parse(STUB.read_text())) if isinstance(one, ast.FunctionDef)
    ]
    told = {
        one.name
        for one in methods
        if any(isinstance(decorator, ast.Attribute) for decorator in one.decorator_list)
    }
    native = RustTreeCore(CacheInitParams(), native=_rust_core).native
    for name in [name for name, parameters in built().items() if parameters is None]:
        with nullcontext() if name in told else pytest.raises(AttributeError):
            setattr(native, name, getattr(native, name))
