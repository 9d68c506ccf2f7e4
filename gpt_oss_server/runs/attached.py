"""The files of a request's input, read as text before the prompt is laid out.

Takes items or messages. Returns them with the text of each file that is named by its id or address, or that
is no plain text, in its part, or raises a 400 that names the part. A conversation keeps the text, so that it
continues after the file is deleted.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from gpt_oss_server.content.parts import attached_bytes
from gpt_oss_server.errors import InvalidRequest, ToolNotAvailable
from gpt_oss_server.http.large_work import in_thread_if_large
from gpt_oss_server.runs.work import Work
from tools.extras import how_to_install

TEXT = "text"  # the key of a part that has been read
_MOST_FILES = 50
_READ_ELSEWHERE = (b"%PDF-", b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
_NESTED = ("content", "output")
Part = Mapping[str, Any]


async def with_files(items: Any, where: str, work: Work) -> Any:
    size = work.caller.body_size
    found = await in_thread_if_large(size, lambda: list(_files(items, where)), items)
    if len(found) > _MOST_FILES:
        raise InvalidRequest.at(where, f"has {len(found)} files, and may have {_MOST_FILES}.")
    read = {}
    for place, part in found:
        if (text := await _text(part, place, work)) is not None:
            read[id(part)] = {**part, **text}
    return await in_thread_if_large(size, lambda: _replaced(items, read), items) if read else items


def _files(value: Any, where: str) -> Iterator[tuple[str, Part]]:
    """The parts with files, and their places."""
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from _files(each, f"{where}[{index}]")
    elif isinstance(value, dict):
        if value.get("type") == "input_file":
            yield where, value
        elif value.get("type") == "file" and isinstance(file := value.get("file"), dict):
            yield f"{where}.file", file
        for key in _NESTED:
            if isinstance(value.get(key), list):
                yield from _files(value[key], f"{where}.{key}")


def _replaced(value: Any, read: Mapping[int, Part]) -> Any:
    if isinstance(value, list):
        return [_replaced(each, read) for each in value]
    if not isinstance(value, dict):
        return value
    if id(value) in read:
        return read[id(value)]
    inner = {key: _replaced(value[key], read) for key in (*_NESTED, "file") if key in value}
    return {**value, **inner} if inner else value


async def _text(part: Part, where: str, work: Work) -> Part | None:
    """What is added to the part; None: it is plain text, or is refused where it is rendered."""
    if isinstance(part.get(TEXT), str):
        return None
    try:
        from tools.browser.network.fetch import Fetcher
        from tools.browser.pages.convert import convert, read_named, without_links
        from tools.browser.pages.document import PageError
    except ImportError as error:
        raise ToolNotAvailable(f"`{where}`: files are not read here. {how_to_install(error)}") from error
    name, owner = part.get("filename"), work.caller.client
    name = name if isinstance(name, str) else ""
    url, file_id = part.get("file_url"), part.get("file_id")
    try:
        if isinstance(file_id, str) and file_id and not part.get("file_data"):
            filename, data = await work.keep.files.whole(file_id, f"{where}.file_id")
            name = name or filename
            document = await read_named(name, data, owner)
        elif isinstance(url, str) and url.lower().startswith(("http://", "https://")):
            fetcher = Fetcher(allow_private_hosts=work.model.settings.allow_private_hosts)
            try:
                document = without_links(await convert(await fetcher.get(url), owner=owner))
            finally:
                await fetcher.close()
            name = name or url
        else:
            raw = attached_bytes(part, where)
            if raw is None or not raw.startswith(_READ_ELSEWHERE):
                return None
            document = await read_named(name, raw, owner)
    except PageError as error:
        named = f" {name!r:.200}" if name else ""
        raise InvalidRequest.at(where, f": the file{named} cannot be read. {error}") from error
    note = f"\n[{document.note}]" if document.note else ""
    return {"filename": name, TEXT: document.text + note}
