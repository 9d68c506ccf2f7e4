"""The usage of a chat completion: the prompt once, the tokens of each choice, and the results of tools.

Prompt tokens count as cached if no choice computed them. Of choices that start together, one computes the
prompt for all.
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
