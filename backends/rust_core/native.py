"""Finds the native modules: the production one, and the inspection build of a checkout.

Both come from the same crate. The inspection build shows the tree's whole state and is never
installed; hides where it lies.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

INSPECTION_MODULE_VARIABLE = "TREEDRIFT_INSPECTION_MODULE"
"""Environment variable that names the built inspection module's file."""

INSPECTION_NAME = "_rust_core_inspection"
PRODUCTION_NAME = "treedrift._rust_core"


def load_production() -> ModuleType:
    """The installed native module. Raises `ImportError` when it was not built."""
    return importlib.import_module(PRODUCTION_NAME)


def load_inspection() -> ModuleType | None:
    """The inspection build, or None when there is none."""
    loaded: Any = sys.modules.get(INSPECTION_NAME)
    if loaded is not None:
        return loaded  # type: ignore[no-any-return]
    path = _inspection_path()
    if path is None:
        return None
    spec = importlib.util.spec_from_file_location(INSPECTION_NAME, path)
    if spec is None or spec.loader is None:
        return None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[INSPECTION_NAME] = module
    return module


def default_native() -> ModuleType:
    """The inspection build where there is one, so that checks in a checkout see all.

    Else the production build. Both run the same code; measurements name `load_production()`.
    """
    return load_inspection() or load_production()


def _inspection_path() -> Path | None:
    """The named file, else the one that a build leaves in this checkout."""
    named = os.environ.get(INSPECTION_MODULE_VARIABLE)
    checkout = Path(__file__).resolve().parents[2]
    path = Path(named) if named else checkout / "build/inspection" / f"{INSPECTION_NAME}.abi3.so"
    return path if path.is_file() else None
