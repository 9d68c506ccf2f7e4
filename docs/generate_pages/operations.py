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
    opening = "You look up here what each path takes, what it answers, and how it fails."
    return opening + "\n\n" + table(("path", "what it does", "statuses of its errors"), rows)
