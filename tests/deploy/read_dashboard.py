"""Prints the fields of a dashboard that Grafana's own SDK does not know or would change.

Run by the Python that has `grafana-foundation-sdk`, with the file's path.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def differences(given: Any, read: Any, where: str = "dashboard") -> Iterator[str]:
    if isinstance(given, dict) and isinstance(read, dict):
        for name, value in given.items():
            if name in read:
                yield from differences(value, read[name], f"{where}.{name}")
            else:
                yield f"{where}.{name} is unknown"
    elif isinstance(given, list) and isinstance(read, list) and len(given) == len(read):
        for place, (one, other) in enumerate(zip(given, read, strict=True)):
            yield from differences(one, other, f"{where}[{place}]")
    elif given != read:
        yield f"{where} is {given!r}, and was read as {read!r}"


def main(path: str) -> None:
    from grafana_foundation_sdk.cog import plugins
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.models.dashboard import Dashboard

    plugins.register_default_plugins()  # the panels' own options too
    given = json.loads(Path(path).read_text(encoding="utf-8"))
    read = json.loads(JSONEncoder().encode(Dashboard.from_json(given)))
    sys.stdout.write("\n".join(differences(given, read)))


if __name__ == "__main__":
    main(sys.argv[1])
