"""What a chat completion cost: the prompt once, what each choice made, and what tools put in between.

The prompt is cached as far as no choice had to compute it: of choices that begin together one does, for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpt_oss_server.turns.transcript import Transcript


def usage_of(transcripts: Sequence[Transcript]) -> dict[str, Any]:
    first = transcripts[0]
    given = len(first.prompt) + first.prefilled + sum(transcript.given for transcript in transcripts)
    made = sum(transcript.sampled for transcript in transcripts)
    return {
        "prompt_tokens": given,
        "completion_tokens": made,
        "total_tokens": given + made,
        "prompt_tokens_details": {"cached_tokens": min(each.cached_tokens for each in transcripts)},
        "completion_tokens_details": {
            "reasoning_tokens": sum(transcript.reasoning_tokens for transcript in transcripts)
        },
    }
