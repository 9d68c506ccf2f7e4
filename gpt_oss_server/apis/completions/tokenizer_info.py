"""What a client needs to use the server's tokenizer as its own: GET /tokenizer_info, in vLLM's shape.

Takes the served model. Returns the special tokens' names and a Jinja template for conversations of text, made
from the server's own rendering, so that both give the same prompt.
"""

from __future__ import annotations

from typing import Any

from gpt_oss_server.harmony.declarations import Declared
from gpt_oss_server.runs.work import Work
from gpt_oss_server.turns.prompt import thinking_of

_GAP = "[[text]]"
_TEMPLATE = (
    "{{{{ {system} }}}}"
    # Instructions at the beginning share one developer message.
    "{{%- set head = namespace(texts=[], open=true) -%}}"
    "{{%- for message in messages -%}}"
    "{{%- if message['role'] not in ('system', 'developer') -%}}"
    "{{%- set head.open = false -%}}{{%- endif -%}}"
    "{{%- if head.open -%}}{{%- set head.texts = head.texts + [message['content']] -%}}{{%- endif -%}}"
    "{{%- endfor -%}}"
    "{{%- if head.texts -%}}{{{{ {developer} }}}}{{%- endif -%}}"
    "{{%- for message in messages[head.texts | length:] -%}}"
    "{{%- if message['role'] in ('system', 'developer') -%}}{{{{ {later} }}}}"
    "{{%- elif message['role'] == 'user' -%}}{{{{ {user} }}}}"
    "{{%- elif message['role'] == 'assistant' -%}}{{{{ {answer} }}}}"
    "{{%- endif -%}}"
    "{{%- endfor -%}}"
    "{{%- if add_generation_prompt -%}}{{{{ {cue} }}}}{{%- endif -%}}"
)


def tokenizer_info(work: Work) -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|startoftext|>",
        "eos_token": "<|return|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": work.model.info.context_length,
        "vocab_size": work.model.info.vocab_size,
        "chat_template": _template(work),
    }


def _template(work: Work) -> str:
    """For messages of text without tools: what a chat request of the same messages shows the model today."""
    model = work.model
    renderer, settings = model.renderer, model.settings
    thinking = thinking_of(settings.default_reasoning_effort, None, settings)
    system = renderer.system(effort=thinking.effort, date=work.date(), identity=settings.identity)
    developer = renderer.developer(Declared(_GAP))
    assert developer is not None
    decode = model.encoding.decode
    return _TEMPLATE.format(
        system=_literal(decode(system.tokens)),
        developer=_expression(decode(developer.tokens), "head.texts | join('\\n\\n')"),
        later=_expression(decode(renderer.developer_message(_GAP).tokens), "message['content']"),
        user=_expression(decode(renderer.user(_GAP).tokens), "message['content']"),
        answer=_expression(decode(renderer.answer(_GAP).tokens), "message['content']"),
        cue=_literal(decode(renderer.cue)),
    )


def _expression(rendered: str, inserted: str) -> str:
    """A Jinja expression of the rendered message, with another expression in its gap."""
    before, after = rendered.split(_GAP)
    return f"{_literal(before)} ~ ({inserted}) ~ {_literal(after)}"


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'"
