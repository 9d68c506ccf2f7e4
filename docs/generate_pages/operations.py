"""The paths of an API: method, path, what it does, and the statuses of its errors."""

from __future__ import annotations

from generate_pages.markdown import code, table
from gpt_oss_server.http.openapi.operations import TABLE, errors_of


def paths(tag: str) -> str:
    rows = []
    for name, operation in TABLE.items():
        if operation.tag == tag:
            method, path = name.split(" ")
            statuses = ", ".join(str(status) for status in errors_of(name))
            rows.append((code(f"{method.upper()} {path}"), operation.summary, statuses))
    return table(("path", "what it does", "statuses of its errors"), rows)
