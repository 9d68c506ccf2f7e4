"""Texts that the model generates in the tests of chat."""

from __future__ import annotations

NEXT = "<|start|>assistant"

HELLO = "<|channel|>final<|message|>Hello 東京 🧠!<|return|>"

CALL = '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"city":"Oslo"}<|call|>'
