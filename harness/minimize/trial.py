"""Tries candidates: replays one and says whether the kind of divergence that is kept still shows.

The sides stay open from trial to trial, a draft is never run twice, and a run ends at the op where
the sides part. Hides how a case is run and what is remembered about it.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

import msgspec

from ..compare import Divergence, decisive
from ..lockstep import Lockstep, Pair
from ..opening import replay_settings
from ..remote import RemoteError
from ..side import HarnessError
from .draft import Candidate, Draft, size_of
from .links import Links, follow, relink
from .sketch import is_sketched

STEP_OPS = 32
"""Ops between two looks at whether the sides have parted."""


class Outcome(msgspec.Struct, array_like=True, frozen=True):
    """What one draft showed.

    `shows`: the divergence that is kept. `end`: so many ops are needed for what it shows (None:
    all). `slip`: another kind that it shows instead.
    """

    shows: bool
    end: int | None = None
    slip: str | None = None

    def cut(self, draft: Draft) -> Draft:
        """The draft without the ops that come after."""
        return draft if self.end is None else Draft(draft.config, draft.ops[: self.end])


class Memo(msgspec.Struct):
    """What is known already: outcomes by the digest of the draft, and what relinking led to.

    `relinked` gives for a base and a candidate the digest of the relinked draft; nothing where
    there is none to try. So a search that goes on need not relink again.
    """

    outcomes: dict[str, Outcome] = {}
    relinked: dict[str, str] = {}


class Trial(msgspec.Struct):
    """One draft that was tried for a candidate, by its digest; shown where it slipped."""

    digest: str
    outcome: Outcome
    draft: Draft | None = None


class Evaluation(msgspec.Struct):
    """What a candidate came to: what was tried, and the smaller draft that it led to, if any.

    `is_late`: the time was over before all was tried. `relinked` is what the memo learned.
    """

    trials: list[Trial] = []
    reached: Draft | None = None
    is_late: bool = False
    relinked: dict[str, str] = {}


Variant = tuple[str, Callable[[], Draft | None]]
"""The digest of a draft to try, and how to make it; no digest where there is nothing to try."""


def replayed(lockstep: Lockstep, pair: Pair, draft: Draft, drains: bool = True) -> list[Divergence]:
    """The divergences of a pair on one draft, as a replay of a saved trace shows them.

    Without `drains`, the final drain is left out.
    """
    session = lockstep.session(draft.config, replay_settings([pair], draft.config))
    found: list[Divergence] = []
    for start in range(0, len(draft.ops), STEP_OPS):
        if not session.is_open:
            break
        found += session.step(draft.ops[start : start + STEP_OPS])
    # A pair that could not be opened is told of at the end, where nothing is run any more.
    if drains or not draft.ops or not session.is_open:
        found += session.finish()
    return [one for one in found if one.pair == pair]


class Judge:
    """Tries drafts of one pair for one signature."""

    def __init__(
        self, lockstep: Lockstep, pair: Pair, kept: Divergence, memo: Memo | None = None
    ) -> None:
        self._lockstep = lockstep
        self._pair = pair
        self._signature = kept.signature
        # A difference names its op, so that only one of the drain can show there.
        self._drains = kept.op_kind == "drain" or kept.kind not in ("difference", "oracle")
        self.memo = Memo() if memo is None else memo
        self._links: tuple[str, Links | None] = ("", None)

    def evaluate(self, base: Draft, candidate: Candidate, deadline: float) -> Evaluation:
        """Try what a candidate stands for: its plain ops, and the ones with references relinked."""
        found = Evaluation()
        makers = [self._plain, self._relinked]
        if candidate.relinked_first:
            makers.reverse()
        for make in makers:
            if monotonic() >= deadline:
                found.is_late = True
                break
            digest, draft_of = make(base, candidate, found)
            if not digest or any(digest == trial.digest for trial in found.trials):
                continue
            trial = self._try(digest, draft_of)
            found.trials.append(trial)
            if trial.outcome.shows:
                found.reached = trial.draft
                break
            if candidate.relinked_first and is_sketched(base.ops):
                break  # In a long trace the plain ops differ little, and take as long again.
        return found

    def _plain(self, base: Draft, candidate: Candidate, found: Evaluation) -> Variant:
        draft = candidate.draft
        return _digest_if_smaller(draft, base), lambda: draft

    def _relinked(self, base: Draft, candidate: Candidate, found: Evaluation) -> Variant:
        key = candidate.digest_for(base)
        digest = self.memo.relinked.get(key)
        if digest is not None:
            return digest, lambda: self._relink(base, candidate)
        draft = self._relink(base, candidate)
        digest = "" if draft is None else _digest_if_smaller(draft, base)
        self.memo.relinked[key] = found.relinked[key] = digest
        return digest, lambda: draft

    def _try(self, digest: str, draft_of: Callable[[], Draft | None]) -> Trial:
        outcome = self.memo.outcomes.get(digest)
        if outcome is not None and not outcome.shows and outcome.slip is None:
            return Trial(digest, outcome)
        draft = draft_of()
        assert draft is not None, "a draft that had a digest can be made again"
        if outcome is None:
            outcome = self.memo.outcomes[digest] = self._run(draft)
        is_wanted = outcome.shows or outcome.slip is not None
        return Trial(digest, outcome, outcome.cut(draft) if is_wanted else None)

    def _run(self, draft: Draft) -> Outcome:
        try:
            found = replayed(self._lockstep, self._pair, draft, self._drains)
        except (HarnessError, RemoteError) as error:
            # A fault of the harness is no reason to lose the search; it shows among what slipped.
            return Outcome(False, None, f"harness:{type(error).__name__}")
        for one in found:
            if one.signature == self._signature:
                return Outcome(True, _end(one))
        other = decisive(found)
        return Outcome(False) if other is None else Outcome(False, _end(other), other.signature)

    def _relink(self, base: Draft, candidate: Candidate) -> Draft | None:
        digest = base.digest()
        if self._links[0] != digest:
            self._links = digest, follow(base)
        links = self._links[1]
        return None if links is None else relink(base, candidate, links)


def _digest_if_smaller(draft: Draft, base: Draft) -> str:
    return draft.digest() if size_of(draft) < size_of(base) else ""


def _end(divergence: Divergence) -> int | None:
    return None if divergence.op_index is None else divergence.op_index + 1
