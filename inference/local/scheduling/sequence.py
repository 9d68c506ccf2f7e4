"""One generation as the scheduler sees it: its tokens, how far they are computed, and its blocks.

A passive record, created when a request arrives and kept until it ends or its reader leaves. Pure Python:
`picker` hides how tokens are sampled, `outbox` how they reach the reader.
"""

from collections.abc import Sequence as Tokens
from dataclasses import dataclass, field

from inference.engine import Finish, Sampling, TokenLogprob
from inference.local.scheduling.drafts import Drafter
from inference.local.scheduling.step import Picker
from inference.outbox import Outbox

NO_SLOT = -1


@dataclass(slots=True, eq=False)
class Holding:
    """The memory that a sequence holds; only the prefix cache changes it."""

    tables: list[list[int]]  # for each kind of layer, its blocks in order; 0 for blocks that it does not hold
    held_from: list[int]  # for each kind: the first block that it holds
    named: int  # the number of full blocks that are computed and that other sequences can find
    # Lengths at which a later prompt may start: the windows before them are worth keeping.
    marks: tuple[int, ...]
    offered: bool = False  # whether its prompt's blocks were offered to lower tiers


@dataclass(slots=True, eq=False)
class Sequence:
    number: int  # in order of arrival
    tokens: list[int]  # the prompt and the sampled tokens
    prompt_length: int
    limit: int  # the most tokens to sample
    sampling: Sampling
    picker: Picker
    outbox: Outbox
    drafter: Drafter | None = None
    names: list[bytes] = field(default_factory=list)  # of the full blocks of its tokens, in order
    holding: Holding | None = None  # None: it waits
    slot: int = NO_SLOT
    launched: int = 0  # positions that launched steps cover
    computed: int = 0  # positions whose keys and values are in its blocks
    last_turn: int = 0  # the number of its last turn at reading its prompt
    in_flight: int = 0  # launched steps whose outcomes are not read yet
    ended: bool = False
    was_admitted: bool = False
    was_fetched: bool = False  # whether lower tiers were asked for its blocks since it waits
    scores: list[TokenLogprob | None] | None = None  # of the prompt's tokens, if requested

    @property
    def rank(self) -> tuple[int, int]:
        """The lowest rank starts first and is preempted last."""
        return self.sampling.priority, self.number

    @property
    def owner(self) -> str:
        return self.sampling.owner

    @property
    def sampled(self) -> int:
        return len(self.tokens) - self.prompt_length

    @property
    def remaining(self) -> int:
        """Known tokens that no launched step covers; 1 while it decodes."""
        return len(self.tokens) - self.launched

    @property
    def stalled(self) -> bool:
        """Whether its reader does not keep up."""
        return self.outbox.is_full

    def finish_with(self, token: int) -> Finish | None:
        """Why the sequence ends with this token, its newest; None if it continues."""
        if token in self.sampling.stop_token_ids:
            return Finish.STOP
        return Finish.LENGTH if self.sampled >= self.limit else None

    def take_scores(self, start: int, scores: Tokens[TokenLogprob]) -> None:
        """Adds scores of the prompt's tokens after position `start`; passes them on once complete."""
        if self.scores is not None:
            self.scores[start + 1 :] = scores
            if len(self.scores) == self.prompt_length:
                self.outbox.set_prompt_scores(tuple(self.scores))
                self.scores = None
