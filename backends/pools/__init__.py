"""The torch memory beside a core: slots, pages, windows, states, request rows and contents.

Cores never import this package; the cache allocates and frees on their behalf.
"""

from .allocator import (
    ALLOC,
    FREE,
    Allocator,
    Journal,
    PagedAllocator,
    TokenAllocator,
    make_allocator,
)
from .errors import PoolError
from .fingerprint import (
    SHORT,
    NamespaceKey,
    extend_fingerprints,
    fingerprints,
    namespace_seed,
    shared_fingerprints,
)
from .kv import POISON, KvBuffers
from .pools import Pools, make_pools
from .rows import RequestTable
from .states import NO_SLOT, RequestStates, StatePool
from .window import ENDLESS, WindowPool

__all__ = [
    "ALLOC",
    "ENDLESS",
    "FREE",
    "NO_SLOT",
    "POISON",
    "SHORT",
    "Allocator",
    "Journal",
    "KvBuffers",
    "NamespaceKey",
    "PagedAllocator",
    "PoolError",
    "Pools",
    "RequestStates",
    "RequestTable",
    "StatePool",
    "TokenAllocator",
    "WindowPool",
    "extend_fingerprints",
    "fingerprints",
    "make_allocator",
    "make_pools",
    "namespace_seed",
    "shared_fingerprints",
]
