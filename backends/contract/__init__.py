"""The contract of a TreeCore: what a core is given, what it answers, and what it may raise.

It imports nothing of the project and holds no behaviour of a tree.
"""

from .actions import (
    BackupKV,
    CacheAction,
    ComponentAction,
    FreeComponentDeviceSlot,
    FreeComponentHostSlot,
    FreeDeviceKV,
    FreeDeviceKVFullOnly,
    MambaEvictExcessPathStates,
    RebuildFullToSWAMapping,
    RecoverEvictedSWA,
    RecoverSWAWithLockedFull,
    SWARebuild,
    UpdatePendingBackupOnNodeSplit,
)
from .components import (
    CacheTransferPhase,
    ComponentType,
    LinkerTransferPhase,
    NodeId,
    PoolHitPolicy,
    PoolName,
    StorageMedium,
)
from .errors import (
    AncestorError,
    ContractError,
    CorePoisonedError,
    InsertProtocolError,
    InvalidArgumentError,
    SanityCheckError,
    TreeCoreError,
    UnknownNodeError,
    UnsupportedError,
)
from .events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    KvEvent,
    KvEventLoraNames,
    KvEventRecorder,
    LoRANameTable,
    LoraNames,
)
from .interface import TreeCore
from .key import RadixKey, Unit
from .params import (
    CacheInitParams,
    DecLockRefParams,
    EvictParams,
    InsertParams,
    MatchPrefixParams,
)
from .results import (
    BufferBackupSnapshot,
    BufferBackupState,
    ComponentTransfers,
    DecLockRefResult,
    DecSwaLockOnlyResult,
    DemoteResult,
    DriveHostEvictionResult,
    DropSubtreeNoHostResult,
    EvictDeviceLeafResult,
    EvictDeviceNextNodeResult,
    EvictionResult,
    Frees,
    IncLockRefResult,
    InsertResult,
    InsertStepResult,
    MatchResult,
    PoolTransfer,
    PoolTransferResult,
    RadixCacheWalkResult,
    StorageBackupSpec,
    TreePathNodeInfo,
)

__all__ = [name for name in dir() if not name.startswith("_")]
