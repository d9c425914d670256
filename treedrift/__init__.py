"""treedrift finds semantic drift between implementations of SGLang's TreeCore.

Users, docs and generated files import this package alone. `treedrift.backends`,
`treedrift.harness`, `treedrift.models` and `treedrift.reports` are the rooms of the house.
Nothing is imported before a name is asked for, so that a worker in a foreign environment, or an
interpreter without torch, can load this module. `__init__.pyi` tells type checkers the names.
"""

__all__ = ["Config", "assert_agree", "ops", "why_missing"]

_HOMES = {
    "Config": "harness.config",
    "assert_agree": "agreeing",
    "ops": "harness.ops",
    "why_missing": "agreeing",
}
"""The module of each public name; `ops` is a module itself."""


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    home = import_module(f"{__name__}.{_HOMES[name]}")
    return home if name == "ops" else getattr(home, name)


def __dir__() -> list[str]:
    return sorted(__all__)
