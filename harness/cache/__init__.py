"""The cache of one side: it drives a core and executes on the pools what the core decides.

One implementation serves every core. It calls the core through the interface alone.
"""

from .cache import Cache
from .controller import Controller, HeldLock
from .findings import CacheError, OracleFinding
from .linker import Linker, PendingOffload
from .memory import pools_for
from .requests import Request

__all__ = [
    "Cache",
    "CacheError",
    "Controller",
    "HeldLock",
    "Linker",
    "OracleFinding",
    "PendingOffload",
    "Request",
    "pools_for",
]
