"""Shrinking: from a trace on which two cores diverge to the smallest one that still shows it.

`minimizer` is the front door; it hides which simplifications there are and in which order they
are tried.
"""

from .minimizer import Minimized, minimize

__all__ = ["Minimized", "minimize"]
