"""Inserts: from the begin to the end of one, told as one op where nothing comes between.

A replay executes what an insert asks for by itself, so the calls that do so are not told. An insert
that got no result, or met other calls on its way, is told step by step.
"""

from __future__ import annotations

from treedrift.backends.contract import ComponentType, InsertParams, InsertResult, InsertStepResult

from .. import ops
from .call import Call
from .sheet import Sheet

SWA, MAMBA, AUXILIARY = ComponentType.SWA, ComponentType.MAMBA, ComponentType.AUXILIARY_SWA


class Inserts:
    """Tells of inserts, of which one may be in flight.

    `op` is None for an insert that can't be told: its steps are passed over.
    """

    def __init__(self, sheet: Sheet) -> None:
        self._sheet = sheet
        self._op: ops.CoreInsert | None = None
        self._result: InsertResult | None = None
        self._resumes = 0
        self.is_open = False

    def forget(self) -> None:
        """The tree was emptied: nothing is in flight."""
        self.is_open = False
        self._sheet.waiting = None

    # --- Calls ----------------------------------------------------------------------------

    def begin(self, call: Call) -> None:
        """`begin_insert`."""
        self._op = self._told(call.arguments["params"])
        self._result = None
        self._resumes = 0
        self.is_open = True
        self._sheet.waiting = None if self._op is None else self
        self._step(call.result)

    def resume(self, call: Call) -> None:
        """`resume_insert`."""
        if not self.is_open or self._op is None:
            self._sheet.leave_out("resume_insert of an insert that was not told")
        elif self._is_stepwise:
            self._sheet.write(ops.CoreResume())
            self._step(call.result)
        else:
            self._resumes += 1
            self._step(call.result)

    def end(self) -> None:
        """`end_insert`."""
        if self._op is not None and self.is_open:
            if self._is_stepwise:
                self._end_stepwise()
            elif self._result is None:
                self.interrupt()
                self._end_stepwise()
            else:
                self._end_at_once(self._op, self._result)
        self.is_open = False
        self._op = None

    def interrupt(self) -> None:
        """Tell what was done so far of an insert, because something else comes next."""
        op = self._op
        if op is None or self._sheet.waiting is None:
            return
        self._sheet.waiting = None
        op.suspend = True
        op.answer = self._sheet.labels.reserve()
        self._sheet.write(op)
        for _ in range(self._resumes):
            self._sheet.write(ops.CoreResume())

    @property
    def _is_stepwise(self) -> bool:
        return self._op is not None and self._sheet.waiting is None

    def _step(self, step: InsertStepResult) -> None:
        self._result = step.result

    def _end_at_once(self, op: ops.CoreInsert, result: InsertResult) -> None:
        self._sheet.waiting = None
        if result.last_device_node is not None:
            op.answer = self._sheet.labels.answer(result.last_device_node)
        self._sheet.write(op)

    def _end_stepwise(self) -> None:
        """A replay ends an insert by itself as soon as it has a result."""
        op, result = self._op, self._result
        if op is None or op.answer is None:
            return
        if result is None:
            self._sheet.write(ops.CoreEnd())
        self._sheet.labels.bind(op.answer, None if result is None else result.last_device_node)

    # --- What an insert was given ---------------------------------------------------------

    def _told(self, params: InsertParams) -> ops.CoreInsert | None:
        """The op of an insert; None, and counted, if there is none."""
        sheet = self._sheet
        problem = self._problem(params)
        if problem is not None:
            sheet.leave_out(f"begin_insert {problem}")
            return None
        tokens, runs = sheet.naming.key(params.key)
        return ops.CoreInsert(
            tokens,
            sheet.naming.namespace(params.key),
            params.key.limit,
            owned=params.prev_prefix_len,
            inserted_len=params.inserted_len,
            priority=params.priority,
            session_id=sheet.naming.session(params.session_id),
            rotation_base=params.rotation_base,
            track_adopted_ranges=params.track_adopted_ranges,
            swa_evicted=params.get_evicted_seqlen(SWA),
            aux_evicted=params.get_evicted_seqlen(AUXILIARY),
            branch=params.swa_branching_seqlen if sheet.config.has_windows else None,
            runs=runs,
        )

    def _problem(self, params: InsertParams) -> str | None:
        """Why an insert can't be told."""
        config, evicted = self._sheet.config, params.component_evicted_seqlens
        if params.value is None:
            return "without a value"
        if params.c128_value is not None:
            return "with a value of C128"
        if params.key.is_bigram and not config.is_bigram:
            return "with a key of pairs into a tree of tokens"
        if any(evicted.get(kind) for kind in evicted if kind not in (SWA, AUXILIARY)):
            return "with an evicted length of no window"
        lengths = (params.prev_prefix_len, *evicted.values())
        if any(length < 0 or length % config.page_size for length in lengths):
            return "with a length that is no whole page"
        state = params.mamba_value
        if config.has_states and (state is None or state.numel() != 1):
            return "without one state"
        return None
