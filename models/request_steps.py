"""Steps at the request level: what an inference server does, one op or a short story of several."""

from __future__ import annotations

from treedrift.harness import ops

from .case import Case


def arrive(case: Case) -> None:
    """A request arrives, and often is prefilled at once."""
    _arrive(case, case.keys.key(), case.namespace())
    if case.chance.flip(0.5):
        case.ops.append(ops.Prefill(case.running - 1))


def _arrive(case: Case, tokens: list[int], namespace: ops.Namespace) -> None:
    """An arrival; where no row should be free, most often another request finishes first."""
    if case.running >= case.config.rows and case.chance.flip(0.85):
        finish(case)
    case.ops.append(
        ops.Arrive(
            # A prompt of nothing is turned away.
            tokens=tokens or case.keys.base(),
            namespace=namespace,
            priority=case.priority(),
            session_id=case.session(),
            rotation_base=case.rotation(),
            cow="mamba" not in case.auxiliary or case.chance.flip(0.85),
        )
    )
    case.running = min(case.running + 1, case.config.rows)


def turn(case: Case) -> None:
    """A conversation: a request runs to its end, and its answer comes back in the next prompt."""
    prompt, namespace = case.keys.key(), case.namespace()
    for _ in range(case.chance.between(1, 3)):
        _arrive(case, prompt, namespace)
        newest = case.running - 1
        answer = case.answer()
        case.ops += (
            ops.Prefill(newest, checkpoint=case.chance.flip(0.8)),
            ops.Decode(newest, tokens=answer),
        )
        if case.chance.flip(0.1):
            break
        case.ops.append(ops.Finish(newest))
        case.running -= 1
        prompt = prompt + answer + case.keys.some(case.page)


def needs_request(case: Case) -> None:
    """Let a request arrive when none should be there."""
    if not case.running:
        _arrive(case, case.keys.key(), case.namespace())


def prefill(case: Case) -> None:
    """A chunk of a prompt, or the rest of it."""
    needs_request(case)
    count = None if case.chance.flip(0.4) else 1 + case.chance.below(2 * case.page)
    case.ops.append(ops.Prefill(case.request(), count, case.chance.flip(0.8)))


def decode(case: Case) -> None:
    """A few output tokens, known or unique ones; sometimes the prompt must be finished first."""
    if not case.running or case.chance.flip(0.3):
        needs_request(case)
        case.ops.append(ops.Prefill(case.request()))
    if case.chance.flip(0.8):
        request = case.request()
        answer = case.answer() if case.windows else case.keys.some(case.page + 1)
        case.ops.append(ops.Decode(request, tokens=answer))
    else:
        case.ops.append(ops.Decode(case.request(), invent=1 + case.chance.below(case.page + 1)))


def checkpoint(case: Case) -> None:
    """A request shares what it has so far."""
    needs_request(case)
    case.ops.append(ops.Checkpoint(case.request()))


def finish(case: Case) -> None:
    """A request ends well."""
    needs_request(case)
    case.ops.append(ops.Finish(case.request()))
    case.running = max(case.running - 1, 0)


def abort(case: Case) -> None:
    """A request ends badly."""
    needs_request(case)
    case.ops.append(ops.Abort(case.request()))
    case.running = max(case.running - 1, 0)


def retract(case: Case) -> None:
    """A request goes back to the queue, and mostly comes again after some pressure."""
    needs_request(case)
    case.ops.append(ops.Retract(case.request()))
    if case.chance.flip(0.6):
        if case.chance.flip(0.5):
            case.ops.append(ops.Evict(*case.shortfalls()))
        case.ops.append(ops.Readmit(0))


def readmit(case: Case) -> None:
    """A waiting request is admitted again."""
    case.ops.append(ops.Readmit(case.chance.below(3)))


def evict(case: Case) -> None:
    """Memory pressure."""
    case.ops.append(ops.Evict(*case.shortfalls()))


def evict_for_alloc(case: Case) -> None:
    """Memory pressure of one allocation."""
    case.ops.append(ops.EvictForAlloc(*case.shortfalls()))


def touch(case: Case) -> None:
    """A lookup for recency alone."""
    case.ops.append(ops.Touch(case.keys.key(), case.namespace()))


def crowd(case: Case) -> None:
    """Requests arrive together, grow in turn and end in any order."""
    for _ in range(case.chance.between(2, case.config.rows + 1)):
        _arrive(case, case.keys.key(), case.namespace())
        prefill(case)
    for _ in range(case.chance.between(1, 6)):
        # Only requests with a window have a fifth thing to do.
        steps = (decode, prefill, checkpoint, decode, early_release)
        case.chance.pick(steps if case.windows else steps[:4])(case)
    for _ in range(case.chance.between(1, case.config.rows)):
        case.chance.pick((finish, finish, finish, abort, retract))(case)


def early_release(case: Case) -> None:
    """A request gives the window of its prefix up, often under pressure."""
    needs_request(case)
    case.ops.append(ops.EarlyRelease(case.request()))
    if case.chance.flip(0.4):
        evict(case)


def share(case: Case) -> None:
    """Requests share a prefix whose windows and states are gone, so that it must branch."""
    prefix, namespace = case.keys.base(), case.namespace()
    _arrive(case, prefix, namespace)
    newest = case.running - 1
    case.ops += (
        ops.Prefill(newest),
        ops.Decode(newest, tokens=case.answer()),
        ops.Finish(newest),
    )
    case.running -= 1
    if case.chance.flip(0.7):
        window = case.config.capacity if case.chance.flip(0.5) else case.amount()
        case.ops.append(ops.Evict(0, window, case.states()))
    for _ in range(case.chance.between(2, 4)):
        shared = prefix if case.chance.flip(0.5) else prefix[: case.keys.near_boundary(len(prefix))]
        _arrive(case, shared + case.keys.some(case.page + 1), namespace)
        case.ops.append(ops.Prefill(case.running - 1))
        if case.chance.flip(0.3):
            case.chance.pick((decode, checkpoint, finish))(case)


def copies(case: Case) -> None:
    """One prompt arrives again and again, from its cached state or without, until there is none."""
    prompt, namespace = case.keys.base(), case.namespace()
    for _ in range(case.chance.between(2, 4)):
        _arrive(case, prompt + case.keys.some(2) if case.chance.flip(0.5) else prompt, namespace)
        newest = case.running - 1
        case.ops.append(ops.Prefill(newest, None if case.chance.flip(0.7) else case.page))
        if case.chance.flip(0.4):
            case.ops.append(ops.EvictForAlloc(0, 0, case.states()))
        if case.chance.flip(0.6):
            case.ops += (ops.Decode(newest, tokens=case.answer()), ops.Checkpoint(newest))
        if case.chance.flip(0.5):
            case.ops.append(ops.Finish(newest))
            case.running -= 1


def linker_ack(case: Case) -> None:
    """The oldest offload lands, or fails."""
    case.ops.append(ops.LinkerAck(case.chance.flip(0.8)))


def reset(case: Case) -> None:
    """Everything ends."""
    case.ops.append(ops.Reset())
    case.running = case.locks = 0


def name_adapter(case: Case) -> None:
    """An adapter is loaded: its namespace gets a name, before or after its first blocks."""
    extra_key = case.namespace().extra_key
    if extra_key is not None:
        case.ops.append(ops.NameAdapter(extra_key, case.chance.pick(("one", "two"))))


def drain_events(case: Case) -> None:
    """The events so far are taken."""
    case.ops.append(ops.DrainEvents())
