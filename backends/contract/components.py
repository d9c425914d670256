"""Names that every part of the contract uses: components, tiers, pools and transfer phases.

Sources: KEY-59, EVT-1, BND-13, and sections 1.3 and 1.4 of the host-tier chapter.
"""

from __future__ import annotations

from enum import Enum, IntEnum

NodeId = int
"""Opaque handle of a tree node. Only identity and creation order mean anything (NODE-4)."""


class ComponentType(IntEnum):
    """What a node can hold a value for (KEY-59). FULL is in every tree."""

    FULL = 0
    SWA = 1
    MAMBA = 2
    C128 = 3
    AUXILIARY_SWA = 4


class StorageMedium(str, Enum):
    """Tier that a KV event speaks of (EVT-1). Cores use GPU and CPU only."""

    GPU = "GPU"
    CPU = "CPU_PINNED"
    DISK = "DISK"
    EXTERNAL = "EXTERNAL"


class CacheTransferPhase(str, Enum):
    """Direction of a host-tier transfer (BND-13)."""

    BACKUP_HOST = "backup_host"
    LOAD_BACK = "load_back"
    BACKUP_STORAGE = "backup_storage"
    PREFETCH = "prefetch"


class LinkerTransferPhase(str, Enum):
    """What a transfer with the external store is for; a core only ever offloads."""

    LOOKUP = "lookup"
    LOAD = "load"
    OFFLOAD = "offload"


class PoolHitPolicy(str, Enum):
    """Which pages of a transfer must exist for it to count as a hit."""

    ALL_PAGES = "all_pages"
    TRAILING_PAGES = "trailing_pages"
    BLOCK_GROUPS = "block_groups"


class PoolName(str, Enum):
    """Memory pools that a transfer can name. Stock components use KV, SWA and MAMBA."""

    KV = "kv"
    MAMBA = "mamba"
    SWA = "swa"
    AUXILIARY_SWA = "auxiliary_swa"
    INDEXER = "indexer"
    DEEPSEEK_V4_C1 = "deepseek_v4_c1"
    DEEPSEEK_V4_C1_INDEXER = "deepseek_v4_c1_indexer"
    DEEPSEEK_V4_C1_INDEXER_SCALE = "deepseek_v4_c1_indexer_scale"
    DEEPSEEK_V4_C2 = "deepseek_v4_c2"
    DEEPSEEK_V4_C2_INDEXER = "deepseek_v4_c2_indexer"
    DEEPSEEK_V4_C2_INDEXER_SCALE = "deepseek_v4_c2_indexer_scale"
    DEEPSEEK_V4_C4 = "deepseek_v4_c4"
    DEEPSEEK_V4_C4_INDEXER = "deepseek_v4_c4_indexer"
    DEEPSEEK_V4_C4_INDEXER_SCALE = "deepseek_v4_c4_indexer_scale"
    DEEPSEEK_V4_C128 = "deepseek_v4_c128"
    DEEPSEEK_V4_C4_ROPE = "deepseek_v4_c4_rope"
    DEEPSEEK_V4_C128_ROPE = "deepseek_v4_c128_rope"
    DEEPSEEK_V4_C4_STATE = "deepseek_v4_c4_state"
    DEEPSEEK_V4_C4_INDEXER_STATE = "deepseek_v4_c4_indexer_state"
    DEEPSEEK_V4_C128_STATE = "deepseek_v4_c128_state"
    DRAFT = "draft"
    DRAFT_INDEXER = "draft_indexer"
    DRAFT_SWA = "draft_swa"

    def __str__(self) -> str:
        return self.value
