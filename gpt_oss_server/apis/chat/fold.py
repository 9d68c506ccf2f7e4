"""Folds the chunks of a chat completion into the object that a client without streaming receives.

Takes every chunk, in order. Returns the completion. It adds nothing, so both forms hold the same content.
"""

from typing import Any

Chunk = dict[str, Any]
_LISTS = ("annotations", "executed_tools")
_BODIES = {"function": "arguments", "custom": "input"}
_TEXTS = ("content", "reasoning", "reasoning_content")


class Folded:
    def __init__(self) -> None:
        self._head: Chunk = {}
        self._choices: dict[int, _FoldedChoice] = {}

    def feed(self, chunk: Chunk) -> None:
        for key, value in chunk.items():
            if key != "choices":
                self._head[key] = value
        for choice in chunk["choices"]:
            self._choices.setdefault(choice["index"], _FoldedChoice()).feed(choice)

    def completion(self) -> dict[str, Any]:
        head = {**self._head, "object": "chat.completion"}
        choices = [self._choices[index].whole(index) for index in sorted(self._choices)]
        return {**head, "choices": choices}


class _FoldedChoice:
    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}
        self._lists: dict[str, list[Any]] = {}
        self._calls: list[dict[str, Any]] = []
        self._arguments: list[list[str]] = []
        self._scores: dict[str, Any] | None = None
        self._end: dict[str, Any] = {}
        self._token_ids: list[int] | None = None

    def feed(self, choice: dict[str, Any]) -> None:
        delta = choice["delta"]
        for key in _TEXTS:
            if key in delta:
                self._texts.setdefault(key, []).append(delta[key])
        for key in _LISTS:
            self._lists.setdefault(key, []).extend(delta.get(key, ()))
        for call in delta.get("tool_calls", ()):
            self._call(call)
        if (logprobs := choice.get("logprobs")) is not None:
            self._scores = self._scores or {"content": [], "refusal": None}
            self._scores["content"] += logprobs["content"]
        if "token_ids" in choice:
            self._token_ids = self._token_ids or []
            self._token_ids += choice["token_ids"]
        if choice["finish_reason"] is not None:
            self._end = {key: choice[key] for key in ("finish_reason", "stop_reason") if key in choice}

    def _call(self, call: dict[str, Any]) -> None:
        if "id" in call:
            self._calls.append({key: value for key, value in call.items() if key != "index"})
            self._arguments.append([])
        kind = self._calls[call["index"]]["type"]
        self._arguments[call["index"]].append(call[kind][_BODIES[kind]])

    def whole(self, index: int) -> dict[str, Any]:
        texts = {key: "".join(parts) for key, parts in self._texts.items()}
        calls = [
            {**call, call["type"]: {**call[call["type"]], _BODIES[call["type"]]: "".join(arguments)}}
            for call, arguments in zip(self._calls, self._arguments, strict=True)
        ]
        only_calls = bool(calls) and not texts["content"]
        message: dict[str, Any] = {
            "role": "assistant",
            "content": None if only_calls else texts["content"],
            "refusal": None,
            **{key: text for key, text in texts.items() if key != "content"},
            **{key: entries for key, entries in self._lists.items() if entries},
        }
        if calls:
            message["tool_calls"] = calls
        ids = {} if self._token_ids is None else {"token_ids": self._token_ids}
        return {"index": index, "message": message, "logprobs": self._scores, **self._end, **ids}
