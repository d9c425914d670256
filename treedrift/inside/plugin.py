"""What SGLang finds in the group `sglang.srt.plugins`: four names in its registry of tree cores.

SGLang calls `register` early in each of its processes, whether somebody wants one of the cores or
not. So nothing but the standard library and SGLang's own registry is imported here; torch, the
cores and the harness follow when a cache asks for a core. It must never keep a server from
starting that asked for none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

LOG = logging.getLogger("treedrift")

Factory = Callable[[Any, Any], Any]
"""How SGLang builds a core: from its `CacheInitParams` and its components by type."""


def python_core(params: Any, components: Any) -> Any:
    """The Python core of treedrift for SGLang's cache."""
    from .cores import build_first

    return build_first("treedrift-python", params, components).core


def rust_core(params: Any, components: Any) -> Any:
    """The Rust core of treedrift for SGLang's cache."""
    from .cores import build_first

    return build_first("treedrift-rust", params, components).core


def shadowed_core(params: Any, components: Any) -> Any:
    """A first core that is compared with a second one, as the variables say."""
    from .cores import build_shadowed

    return build_shadowed(params, components)


def recorded_core(params: Any, components: Any) -> Any:
    """A core whose calls are written down, as the variables say."""
    from .cores import build_recorded

    return build_recorded(params, components)


FACTORIES: dict[str, Factory] = {
    "treedrift-python": python_core,
    "treedrift-rust": rust_core,
    "treedrift-shadow": shadowed_core,
    "treedrift-record": recorded_core,
}
"""What each name builds. All raise the contract's errors, and `VariableError`."""


def register() -> None:
    """Add the names to SGLang's registry; nothing without SGLang, one log line if it has none.

    May be called again. A name that somebody else took stays theirs, which is logged.
    """
    try:
        from sglang.srt.mem_cache.unified_cache.tree_core_registry import (
            get_tree_core_factory,
            register_tree_core_backend,
        )
    except ImportError as error:
        if error.name != "sglang":
            LOG.warning("treedrift adds no tree cores: this sglang takes none (%s)", error)
        return
    for name, factory in FACTORIES.items():
        taken = get_tree_core_factory(name)
        if taken is None:
            register_tree_core_backend(name, factory)
        elif taken is not factory:
            LOG.warning("%s is registered already, by %s; it stays theirs", name, _owner(taken))
    LOG.info("treedrift adds the tree cores %s", ", ".join(FACTORIES))


def _owner(factory: object) -> str:
    return str(getattr(factory, "__module__", type(factory).__module__))
