"""A hook of MkDocs: pages link to files of the repository, and the site carries those files.

Takes the pages as they are in the repository, where `../examples/demo.py` is a link that works. Returns them
with links to copies below `source/`. A linked Markdown file becomes a page of the site, and the files that it
links to are carried as well. A link to a file that does not exist stays, and fails the build.
"""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import dirname, normpath, relpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
COPIES = "source"
MARK = {"images/icon.svg": "gpt_oss_server/playground/static/icon.svg", "site.css": "docs/site/site.css"}
_LINK = re.compile(r"(?<=\]\()(?P<path>(?!\w+:)[^)#\s]+)(?P<place>#[^)]*)?(?=\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for uri, path in MARK.items():
        files.append(File.generated(config, uri, content=(ROOT / path).read_bytes()))
    waiting = [f"docs/{file.src_uri}" for file in files.documentation_pages()]
    known = set(waiting)
    while waiting:
        page = waiting.pop()
        for path in sorted(_linked(page) - known):
            known.add(path)
            if path.startswith("docs/") or not (ROOT / path).is_file():
                continue
            copy = File.generated(config, f"{COPIES}/{path}", content=(ROOT / path).read_bytes())
            copy.inclusion = InclusionLevel.NOT_IN_NAV
            files.append(copy)
            if path.endswith(".md"):
                waiting.append(path)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    here = page.file.src_uri
    source = here.removeprefix(f"{COPIES}/") if here.startswith(f"{COPIES}/") else f"docs/{here}"

    def moved(match: re.Match[str]) -> str:
        path = _path(source, match)
        target = path.removeprefix("docs/") if path.startswith("docs/") else f"{COPIES}/{path}"
        if files.get_file_from_path(target) is None:
            return match[0]
        return relpath(target, dirname(here) or ".")

    return _LINK.sub(moved, markdown)


def _linked(page: str) -> set[str]:
    """The paths in the repository of the files that a Markdown file links to."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return {_path(page, match) for match in _LINK.finditer(text)}


def _path(page: str, link: re.Match[str]) -> str:
    return normpath(f"{dirname(page) or '.'}/{link['path']}")
