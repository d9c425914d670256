"""The torch memory beside a core: slots, pages, request rows and KV contents.

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

__all__ = [
    "ALLOC",
    "FREE",
    "POISON",
    "SHORT",
    "Allocator",
    "Journal",
    "KvBuffers",
    "NamespaceKey",
    "PagedAllocator",
    "PoolError",
    "Pools",
    "RequestTable",
    "TokenAllocator",
    "extend_fingerprints",
    "fingerprints",
    "make_allocator",
    "make_pools",
    "namespace_seed",
    "shared_fingerprints",
]
