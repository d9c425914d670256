"""The Rust core: a native tree behind a thin adapter.

`core/` is the tree in plain Rust, `binding/` its Python boundary, `adapter` dresses what crosses
in the contract's classes. Nothing outside this package imports the native module.
"""

from .adapter import RustTreeCore
from .inspection import inspector

__all__ = ["RustTreeCore", "inspector"]
