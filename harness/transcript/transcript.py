"""Calls of a cache on its core become the ops of a trace.

A replay of the ops makes a core do what the recorded one did, slots aside. What the op language
can't say is left out and counted. Nothing here knows whose cache it is.

Hides which calls of a cache an op stands for: a replay asks and executes some by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from treedrift.backends.contract import ComponentType, NodeId, RadixKey, SWARebuild

from .. import ops
from ..config import Config
from .call import Call
from .flags import FLAGS, Flags
from .inserts import Inserts
from .locks import NAMES, Locks
from .offloads import Offloads
from .pseudonyms import Naming
from .sheet import Sheet
from .walks import Walks

SILENT = frozenset(
    {
        "component_evictable_size",
        "component_protected_size",
        "empty_match_result",
        "evictable_size",
        "full_evictable_size",
        "full_protected_size",
        "has_ongoing_insert",
        "is_write_through_compatible",
        "mamba_evictable_size",
        "mamba_protected_size",
        "node_by_id",
        "pretty_print",
        "protected_size",
        "supports_fast_match_prefix",
        "swa_evictable_size",
        "swa_protected_size",
        "total_size",
    }
)
"""Reads that need no op: every op compares sizes, and the rest says nothing of the tree."""

ABOUT_NODE: dict[str, ops.Question] = {
    "build_backup_kv_action": "backup_chain",
    "build_external_linker_offload_transfers": "backup_chain",
    "build_storage_backup_spec": "predicates",
    "component_has_host_value_only": "predicates",
    "get_component_device_value": "predicates",
    "get_hash_values": "hashes",
    "get_last_hash_value": "hashes",
    "get_prefix_hash_values": "hashes",
    "is_backuped": "predicates",
    "is_full_device_evicted": "predicates",
    "is_root": "predicates",
    "prefetch_anchor_info": "predicates",
    "rotation_base_of": "rotation",
    "rotation_phase_of": "rotation",
    "snapshot_buffer_backup": "snapshot",
    "validate_buffer_backup": "validate",
}
"""The question that holds what a read of one node asks."""

READS = SILENT | {
    "all_mamba_values_flatten",
    "all_values_flatten",
    "buffer_backup_pool_keys",
    "collect_full_device_indices",
    "collect_path_info",
    "component_has_host_value_only",
    "dfs_weight_order",
    "get_component_device_value",
    "get_hash_values",
    "get_last_hash_value",
    "get_prefix_hash_values",
    "is_backuped",
    "is_full_device_evicted",
    "is_root",
    "match_full_device_prefix",
    "prefetch_anchor_info",
    "root_node_handle",
    "rotation_base_of",
    "rotation_phase_of",
    "swa_tombstone_ranges",
    "take_events",
    "walk_for_kv_canary",
}
"""Calls after which no size of a tree can be another."""


class Transcript:
    """The calls of one cache since its tree was empty, told one by one.

    `flags` are the settings at that time; `calls` counts what was told of; `has_begun` says whether
    anything but settings was.
    """

    def __init__(self, config: Config, naming: Naming, flags: Flags | None = None) -> None:
        self.calls = 0
        self.flags = Flags() if flags is None else flags
        self._sheet = Sheet(config, naming)
        self._inserts = Inserts(self._sheet)
        self._locks = Locks(self._sheet)
        self._offloads = Offloads(self._sheet)
        self._walks = Walks(self._sheet)
        self._rebuilds: set[NodeId] = set()
        self.has_begun = False
        self._is_cleared = True

    @property
    def is_between(self) -> bool:
        """Whether nothing is half done, so that another transcript could take over here."""
        return not (self._inserts.is_open or self._walks.is_open or self._offloads.is_starting)

    @property
    def untold(self) -> Counter[str]:
        """Calls that could not be told, by what they were."""
        return self._sheet.untold

    def tell(self, call: Call) -> list[ops.AnyOp]:
        """The ops that a call becomes, none or several; an insert's comes with its end."""
        self.calls += 1
        if call.error is not None:
            self._sheet.leave_out(f"{call.method}, which raised {type(call.error).__name__}")
            return []
        self._offloads.hear(call.method)
        handler = HANDLERS.get(call.method)
        if handler is not None:
            handler(self, call)
        elif call.method not in SILENT:
            self._sheet.leave_out(call.method)
        return self._sheet.take()

    def finish(self) -> list[ops.AnyOp]:
        """The ops of what is still under way."""
        self._inserts.interrupt()
        return self._sheet.take()

    # --- Life cycle, settings and events ---------------------------------------------------

    def reset(self, call: Call) -> None:
        """`reset`; one of a tree that is still empty needs no op."""
        if self.has_begun:
            self._write(ops.Reset())
        for part in (self._inserts, self._locks, self._offloads, self._walks, self._sheet.labels):
            part.forget()
        self._rebuilds.clear()
        self._is_cleared = True

    def all_cleared(self, call: Call) -> None:
        """`kv_events.record_all_cleared`, which a replay calls after every reset (CTL-6)."""
        if not self._is_cleared:
            self._sheet.leave_out("kv_events.record_all_cleared without a reset")
        self._is_cleared = False

    def assign(self, call: Call) -> None:
        """A setting gets a value."""
        op = self.flags.assign(FLAGS[call.method], call.arguments["value"])
        if op is not None:
            self._sheet.write(op)

    def assign_host_pool(self, call: Call) -> None:
        """`has_swa_host_pool`, which only a host tier sets."""
        if call.arguments["value"]:
            self._sheet.leave_out("has_swa_host_pool")

    def use_as_buffer(self, call: Call) -> None:
        """`set_host_memory_buffer_only`."""
        op = self.flags.assign("buffer_only", True)
        if op is not None:
            self._sheet.write(op)

    # --- Matches ---------------------------------------------------------------------------

    def match(self, call: Call) -> None:
        """`match_prefix`."""
        self._match(call.arguments["params"].key, call.result.last_device_node, is_read=False)

    def match_device(self, call: Call) -> None:
        """`match_full_device_prefix`; while an insert is open, nobody but it needs the answer."""
        if self._sheet.waiting is None:
            self._match(call.arguments["key"], call.result[1], is_read=True)

    def _match(self, key: RadixKey, node: NodeId, *, is_read: bool) -> None:
        if key.is_bigram and not self._sheet.config.is_bigram:
            self._sheet.leave_out("a match of pairs in a tree of tokens")
            return
        naming = self._sheet.naming
        tokens, runs = naming.key(key)
        op = ops.CoreMatch(tokens, naming.namespace(key), key.limit, is_read, runs)
        op.answer = self._sheet.labels.answer(node)
        self._write(op)

    # --- Locks and evictions ----------------------------------------------------------------

    def lock(self, call: Call) -> None:
        """`inc_lock_ref`; that of an offload belongs to the offload."""
        self._walks.meet_lock()
        if not self._offloads.takes_lock(call):
            self._locks.lock(call)

    def unlock(self, call: Call) -> None:
        """`dec_lock_ref`; that of an offload belongs to the offload."""
        if not self._offloads.takes_unlock(call):
            self._locks.unlock(call)

    def cap_path(self, call: Call) -> None:
        """`evict_excess_path_states`, which an insert asks for by itself (CTL-22)."""
        if not self._inserts.is_open:
            ref = self._sheet.ref(call.method, call.arguments["tail_node_id"])
            if ref is not None:
                self._write(ops.CapPath(ref))

    def evict_host(self, call: Call) -> None:
        """`drive_host_eviction`."""
        component = NAMES[call.arguments["component_type"]]
        self._write(ops.HostEvict(call.arguments["num_tokens"], component))

    # --- Values and windows -----------------------------------------------------------------

    def store_value(self, call: Call) -> None:
        """`set_component_device_value`, if nothing asked for it that was told before."""
        node, component = call.arguments["node_id"], call.arguments["component_type"]
        if self._inserts.is_open or node in self._rebuilds:
            self._rebuilds.discard(node)
            return
        ref = self._sheet.ref(call.method, node)
        if ref is not None:
            self._write(ops.StoreValue(ref, NAMES[component]))

    def window_ranges(self, call: Call) -> None:
        """`swa_tombstone_ranges`."""
        given = call.arguments
        tokens, space = self._spelled_out(given["key"])
        component = NAMES[given.get("component_type", ComponentType.SWA)]
        self._write(ops.WindowRanges(tokens, given["start"], given["end"], space, component))

    def attach_window(self, call: Call) -> None:
        """`attach_swa_window`; what it asks for is told with it."""
        given = call.arguments
        tokens, space = self._spelled_out(given["key"])
        component = NAMES[given.get("component_type", ComponentType.SWA)]
        start, end = given["window_start"], given["window_end"]
        self._write(ops.AttachWindow(tokens, 0, start, end, space, component))
        actions = [action for action in call.result if isinstance(action, SWARebuild)]
        self._rebuilds.update(action.node_id for action in actions)

    def _spelled_out(self, key: RadixKey) -> tuple[list[int], ops.Namespace]:
        """The tokens of a key, for an op that has no runs."""
        naming = self._sheet.naming
        tokens, runs = naming.key(key[:] if key.limit is not None else key)
        spelled = [token for first, count in runs for token in range(first, first + count)]
        return tokens + spelled, naming.namespace(key)

    # --- Linker -----------------------------------------------------------------------------

    def ask_offload(self, call: Call) -> None:
        """`build_external_linker_offload_transfers`."""
        self._offloads.asked(call)
        self.ask_about_node(call)

    def mark_offload(self, call: Call) -> None:
        """`mark_external_linker_offload_pending`."""
        self._offloads.mark(call, is_asked_for=self._inserts.is_open)

    def mark_stored(self, call: Call) -> None:
        """`mark_external_cache_stored_path`."""
        node = self._sheet.ref(call.method, call.arguments["from_node_id"])
        until = self._sheet.ref(call.method, call.arguments["until_node_id"])
        if node is not None and until is not None:
            self._write(ops.MarkStored(node, until))

    # --- Questions --------------------------------------------------------------------------

    def ask_about_node(self, call: Call) -> None:
        """A read of one node."""
        given = call.arguments
        number = given.get("expected_key_length", 0)
        flag = given.get("pass_prefix_keys", False)
        self._ask(ABOUT_NODE[call.method], [given["node_id"]], number=number, flag=flag)

    def ask_path(self, call: Call) -> None:
        """`collect_path_info`."""
        self._ask("path", call.arguments["end_node_ids"])

    def ask_order(self, call: Call) -> None:
        """`dfs_weight_order`."""
        self._ask("order", call.arguments["node_ids"])

    def ask_indices(self, call: Call) -> None:
        """`collect_full_device_indices`; an op can say the root alone as the end of the path."""
        if call.arguments["until_node_id"] != self._sheet.labels.root:
            self._sheet.leave_out(f"{call.method} up to another node than the root")
        else:
            self._ask("indices", [call.arguments["from_node_id"]])

    def ask_canary(self, call: Call) -> None:
        """`walk_for_kv_canary`."""
        given = call.arguments
        number = int(given["swa_resident_only"])
        self._ask("canary", [], number=number, flag=given["unlocked_only"])

    def note_root(self, call: Call) -> None:
        """`root_node_handle`."""
        self._sheet.labels.root = call.result

    def _ask(
        self, about: ops.Question, nodes: Sequence[NodeId], number: int = 0, flag: bool = False
    ) -> None:
        """Put a question, but for what an insert asks along the way."""
        if self._inserts.is_open:
            return
        refs = [self._sheet.ref(f"ask {about}", node) for node in nodes]
        told = [ref for ref in refs if ref is not None]
        if told or not nodes:
            self._write(ops.Ask(about, told, number, flag))

    def _write(self, op: ops.AnyOp) -> None:
        self.has_begun = True
        self._sheet.write(op)


HANDLERS: dict[str, Callable[[Transcript, Call], object]] = {
    **dict.fromkeys(ABOUT_NODE, Transcript.ask_about_node),
    **dict.fromkeys(FLAGS, Transcript.assign),
    "all_mamba_values_flatten": lambda told, call: told._ask("flatten", []),
    "all_values_flatten": lambda told, call: told._ask("flatten", []),
    "attach_swa_window": Transcript.attach_window,
    "backfill_missing_hash_values": lambda told, call: told._write(ops.Backfill()),
    "begin_insert": lambda told, call: told._inserts.begin(call),
    "build_external_linker_offload_transfers": Transcript.ask_offload,
    "collect_full_device_indices": Transcript.ask_indices,
    "collect_path_info": Transcript.ask_path,
    "dec_full_pin": lambda told, call: told._locks.unpin(call),
    "dec_host_lock_ref": lambda told, call: told._locks.host_unlock(call),
    "dec_lock_ref": Transcript.unlock,
    "dec_swa_lock_only": lambda told, call: told._locks.release_window(call),
    "dec_window_lock_only": lambda told, call: told._locks.release_window(call),
    "dfs_weight_order": Transcript.ask_order,
    "drive_host_eviction": Transcript.evict_host,
    "drop_subtree_no_host": lambda told, call: told._walks.drop(call),
    "end_insert": lambda told, call: told._inserts.end(),
    "evict_device_end": lambda told, call: told._walks.end(call),
    "evict_device_leaf": lambda told, call: told._walks.evict_leaf(call, told.flags.is_write_back),
    "evict_device_next_node": lambda told, call: told._walks.step(call),
    "evict_device_start": lambda told, call: told._walks.start(call),
    "evict_excess_path_states": Transcript.cap_path,
    "finish_external_linker_offload": lambda told, call: told._offloads.finish(call),
    "has_swa_host_pool =": Transcript.assign_host_pool,
    "inc_full_pin": lambda told, call: told._locks.pin(call),
    "inc_host_lock_ref": lambda told, call: told._locks.host_lock(call),
    "inc_lock_ref": Transcript.lock,
    "kv_events.record_all_cleared": Transcript.all_cleared,
    "mark_external_cache_stored_path": Transcript.mark_stored,
    "mark_external_linker_offload_pending": Transcript.mark_offload,
    "match_full_device_prefix": Transcript.match_device,
    "match_prefix": Transcript.match,
    "reset": Transcript.reset,
    "resume_insert": lambda told, call: told._inserts.resume(call),
    "root_node_handle": Transcript.note_root,
    "sanity_check": lambda told, call: told._ask("sanity", []),
    "set_component_device_value": Transcript.store_value,
    "set_host_memory_buffer_only": Transcript.use_as_buffer,
    "swa_tombstone_ranges": Transcript.window_ranges,
    "take_events": lambda told, call: told._write(ops.DrainEvents()),
    "walk_for_kv_canary": Transcript.ask_canary,
}
"""What tells each call. A method that is neither here nor silent can't be told."""
