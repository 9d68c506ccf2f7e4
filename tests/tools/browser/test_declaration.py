"""The browser's declaration has the words of the model's training."""

from __future__ import annotations

from openai_harmony import ToolNamespaceConfig  # type: ignore[import-untyped, unused-ignore]

from tools.browser.declaration import BROWSER


def test_the_declaration_is_harmonys_own() -> None:
    theirs = ToolNamespaceConfig.browser().model_dump()
    declared = {
        "name": BROWSER.namespace,
        "description": BROWSER.description,
        "tools": [
            {"name": f.name, "description": f.description, "parameters": f.parameters}
            for f in BROWSER.functions
        ],
    }
    assert declared == theirs
