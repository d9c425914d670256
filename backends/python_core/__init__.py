"""The Python core: the readable implementation of the contract."""

from .core import PythonTreeCore

__all__ = ["PythonTreeCore"]
