"""One generation as the scheduler sees it: its tokens, how far they are computed, and its blocks.

It is a record with no will of its own, made when a request comes and kept until it ends or its reader leaves.
Pure Python: what samples its tokens is behind `picker`, what carries them away is behind `outbox`.
"""

from __future__ import annotations

from collections.abc import Sequence as Tokens
from dataclasses import dataclass, field

from inference.engine import Finish, Sampling, TokenLogprob
from inference.local.scheduling.drafts import Drafter
from inference.local.scheduling.step import Picker
from inference.outbox import Outbox

NO_SLOT = -1


@dataclass(slots=True, eq=False)
class Holding:
    """What a sequence holds of the memory, for the block manager alone to change."""

    tables: list[list[int]]  # for each kind of layer its blocks in order; 0 where none is held (any more)
    held_from: list[int]  # for each kind: blocks before this one are not held
    named: int  # so many whole blocks are computed and can be found by others
    marks: tuple[
        int, ...
    ]  # lengths at which a later prompt may begin: the windows before them are worth keeping


@dataclass(slots=True, eq=False)
class Sequence:
    number: int  # in the order of arrival
    tokens: list[int]  # the prompt and what was sampled
    prompt_length: int
    limit: int  # so many tokens may be sampled
    sampling: Sampling
    picker: Picker
    outbox: Outbox
    drafter: Drafter | None = None
    names: list[bytes] = field(default_factory=list)  # of the whole blocks that its tokens fill, in order
    holding: Holding | None = None  # None: it waits
    slot: int = NO_SLOT
    launched: int = 0  # positions that steps have been launched for
    computed: int = 0  # positions whose keys and values are in its blocks
    last_turn: int = 0  # when it last took in a part of its prompt, among all that do
    in_flight: int = 0  # steps launched whose outcomes are not read yet
    ended: bool = False
    was_admitted: bool = False
    scores: list[TokenLogprob | None] | None = None  # of the prompt's tokens, where asked for

    @property
    def rank(self) -> tuple[int, int]:
        """Who begins first, and who gives way last."""
        return self.sampling.priority, self.number

    @property
    def sampled(self) -> int:
        return len(self.tokens) - self.prompt_length

    @property
    def remaining(self) -> int:
        """Known tokens that no step has been launched for; 1 when it decodes."""
        return len(self.tokens) - self.launched

    @property
    def stalled(self) -> bool:
        """Its reader does not read."""
        return self.outbox.is_full

    def finish_of(self, token: int) -> Finish | None:
        """Why the sequence ends with this token, its newest, if it does."""
        if token in self.sampling.stop_token_ids:
            return Finish.STOP
        return Finish.LENGTH if self.sampled >= self.limit else None

    def take_scores(self, start: int, scores: Tokens[TokenLogprob]) -> None:
        """Of the prompt's tokens after position `start`; told once they are all there."""
        if self.scores is not None:
            self.scores[start + 1 :] = scores
            if len(self.scores) == self.prompt_length:
                self.outbox.tell_scores(tuple(self.scores))
                self.scores = None
