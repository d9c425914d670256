"""Rules of the request level: what an inference server does.

A request is known by its number in order of admission. Its end gives its text back, so that a
later prompt can go on from it.
"""

from __future__ import annotations

from itertools import count
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, MultipleResults, consumes, multiple, precondition, rule

from treedrift.harness import ops

from .base import TreeMachine, of, on

Serial = int

REQUESTS: Bundle[Serial] = Bundle("requests")
WAITING: Bundle[Serial] = Bundle("waiting")
TEXTS: Bundle[tuple[int, ...]] = Bundle("texts")


def has_free_row(machine: TreeMachine) -> bool:
    """Whether a request can be admitted."""
    return machine.requests < machine.config.rows


class RequestRules(TreeMachine):
    """Requests come, compute, wait and go."""

    def __init__(self) -> None:
        super().__init__()
        self.running: list[Serial] = []
        self.waiting: list[Serial] = []
        self._texts: dict[Serial, list[int]] = {}
        self._serials = count()

    # --- Arriving -------------------------------------------------------------------------

    @on("arrive")
    @precondition(has_free_row)
    @rule(target=REQUESTS, tokens=of("prompts"), namespace=of("namespaces"), labels=of("labels"))
    def arrive(
        self, tokens: list[int], namespace: ops.Namespace, labels: dict[str, Any]
    ) -> MultipleResults[Serial]:
        """A request arrives."""
        self.run(ops.Arrive(tokens, namespace=namespace, **labels))
        return self._admitted(tokens)

    @on("share")
    @precondition(has_free_row)
    @rule(
        target=REQUESTS,
        text=TEXTS,
        more=of("some"),
        cut=of("cuts"),
        cow=of("cows"),
        gone=of("shortfalls"),
    )
    def branch(
        self,
        text: tuple[int, ...],
        more: list[int],
        cut: int,
        cow: bool,
        gone: tuple[int, int, int],
    ) -> MultipleResults[Serial]:
        """A prompt shares what a request has left, after some of its windows and states went."""
        tokens = [*text[:cut], *more]
        self.run(ops.Evict(0, *gone[1:]), ops.Arrive(tokens, cow=cow))
        return self._admitted(tokens)

    @on("turn")
    @precondition(has_free_row)
    @rule(target=REQUESTS, text=TEXTS, more=of("some"), namespace=of("namespaces"))
    def come_back(
        self, text: tuple[int, ...], more: list[int], namespace: ops.Namespace
    ) -> MultipleResults[Serial]:
        """The text of a request that has ended, and a little more, is the next prompt."""
        tokens = [*text, *more]
        self.run(ops.Arrive(tokens, namespace=namespace))
        return self._admitted(tokens)

    @on("readmit")
    @precondition(has_free_row)
    @rule(target=REQUESTS, request=consumes(WAITING))
    def readmit(self, request: Serial) -> MultipleResults[Serial]:
        """A waiting request is admitted again."""
        place = _place(self.waiting, request)
        self.run(ops.Readmit(place))
        admitted = self._admitted(self._texts.get(request, []))
        if admitted.values and self.waiting:
            del self.waiting[place]
        return admitted

    def _admitted(self, text: list[int]) -> MultipleResults[Serial]:
        """The number of the request that the last op admitted, if it did."""
        if self.requests <= len(self.running):
            return multiple()
        serial = next(self._serials)
        self.running.append(serial)
        self._texts[serial] = list(text)
        return multiple(serial)

    # --- Computing ------------------------------------------------------------------------

    @on("prefill")
    @rule(request=REQUESTS, count=of("counts"), checkpoint=st.booleans())
    def prefill(self, request: Serial, count: int | None, checkpoint: bool) -> None:
        """A chunk of a prompt, or the rest of it."""
        self.run(ops.Prefill(_place(self.running, request), count, checkpoint))

    @on("decode")
    @rule(request=REQUESTS, tokens=of("some"))
    def decode(self, request: Serial, tokens: list[int]) -> None:
        """A request produces tokens that others may have too; its prompt is finished first."""
        place = _place(self.running, request)
        self.run(ops.Prefill(place), ops.Decode(place, tokens))
        self._texts.setdefault(request, []).extend(tokens)

    @on("decode")
    @rule(request=REQUESTS, invent=of("lengths"))
    def invent(self, request: Serial, invent: int) -> None:
        """A request produces tokens that nobody else has."""
        self.run(ops.Decode(_place(self.running, request), invent=invent))

    @on("early_release")
    @rule(request=REQUESTS)
    def early_release(self, request: Serial) -> None:
        """A request gives the window of its prefix up."""
        self.run(ops.EarlyRelease(_place(self.running, request)))

    @on("checkpoint")
    @rule(request=REQUESTS)
    def checkpoint(self, request: Serial) -> None:
        """A request shares what it has so far."""
        self.run(ops.Checkpoint(_place(self.running, request)))

    # --- Ending ---------------------------------------------------------------------------

    @on("finish")
    @rule(target=TEXTS, request=consumes(REQUESTS))
    def finish(self, request: Serial) -> tuple[int, ...]:
        """A request ends well."""
        self.run(ops.Finish(_place(self.running, request)))
        return self._gone(request)

    @on("abort")
    @rule(target=TEXTS, request=consumes(REQUESTS))
    def abort(self, request: Serial) -> tuple[int, ...]:
        """A request ends badly, and its prompt may come again."""
        self.run(ops.Abort(_place(self.running, request)))
        return self._gone(request)

    @on("retract")
    @rule(target=WAITING, request=consumes(REQUESTS))
    def retract(self, request: Serial) -> Serial:
        """A request goes back to the queue."""
        self.run(ops.Retract(_place(self.running, request)))
        self._gone(request)
        self.waiting.append(request)
        return request

    def _gone(self, request: Serial) -> tuple[int, ...]:
        if request in self.running:
            self.running.remove(request)
        return tuple(self._texts.get(request, ()))

    # --- The server at large --------------------------------------------------------------

    @on("evict")
    @rule(shortfalls=of("shortfalls"))
    def evict(self, shortfalls: tuple[int, int, int]) -> None:
        """Memory pressure."""
        self.run(ops.Evict(*shortfalls))

    @on("evict_for_alloc")
    @rule(shortfalls=of("shortfalls"))
    def evict_for_alloc(self, shortfalls: tuple[int, int, int]) -> None:
        """Memory pressure of one allocation."""
        self.run(ops.EvictForAlloc(*shortfalls))

    @on("touch")
    @rule(tokens=of("keys"), namespace=of("namespaces"))
    def touch(self, tokens: list[int], namespace: ops.Namespace) -> None:
        """A lookup for recency alone."""
        self.run(ops.Touch(tokens, namespace))

    @on("linker_ack")
    @rule(fails=st.booleans())
    def linker_ack(self, fails: bool) -> None:
        """The oldest offload lands, or fails."""
        self.run(ops.LinkerAck(not fails))

    @on("drain_events")
    @rule()
    def drain_events(self) -> None:
        """The events so far are taken."""
        self.run(ops.DrainEvents())

    @on("name_adapter")
    @rule(namespace=of("namespaces"), name=st.sampled_from(("one", "two")))
    def name_adapter(self, namespace: ops.Namespace, name: str) -> None:
        """An adapter is loaded: its namespace gets a name."""
        self.run(ops.NameAdapter(namespace.extra_key or "a", name))

    @on("reset")
    @rule()
    def reset(self) -> None:
        """Everything ends."""
        self.run(ops.Reset())
        self.running.clear()
        self.waiting.clear()
        self.forget_references()


def _place(serials: list[Serial], serial: Serial) -> int:
    """Where a request stands among those that an op can name; the first if it has gone."""
    return serials.index(serial) if serial in serials else 0
