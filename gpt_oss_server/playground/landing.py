"""The landing page: what is served here, and how to reach it.

Takes what the engine states about itself and the address by which the browser reached the server. Returns
HTML in which everything that is not written here is escaped.
"""

from collections.abc import Sequence
from html import escape

from inference.engine import EngineInfo

_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{name} · gpt-oss-server</title>
<link rel="icon" href="data:,">
<style>
:root {{ color-scheme: light dark; --line: #8884; }}
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 3rem auto; max-width: 46rem; padding: 0 1.2rem; }}
h1 {{ font-size: 1.5rem; margin-bottom: 0; }}
h2 {{ font-size: 1.05rem; margin-top: 2rem; }}
dl {{ display: grid; grid-template-columns: 7rem 1fr; gap: .3rem 1rem; }}
dt {{ opacity: .7; }}
dd {{ margin: 0; overflow-wrap: anywhere; }}
pre {{ border: 1px solid var(--line); border-radius: 6px; overflow-x: auto; padding: .8rem 1rem; }}
code, pre {{ font: 14px/1.5 ui-monospace, monospace; }}
footer {{ border-top: 1px solid var(--line); margin-top: 2.5rem; opacity: .7; padding-top: .6rem; }}
</style>
</head>
<body>
<h1>{name}</h1>
<p>{description}</p>
<dl>
<dt>Model</dt><dd><code>{names}</code></dd>
<dt>Context</dt><dd>{context} tokens</dd>
<dt>API</dt><dd><code>{base}v1</code>, the base URL for clients; {keys}</dd>
<dt>Speaks</dt><dd>Responses, Chat Completions, Completions, Conversations</dd>
<dt>Reference</dt><dd><a href="{base}docs">all operations, to read and to try</a>, or as
<a href="{base}openapi.json">OpenAPI</a></dd>
<dt>State</dt><dd><a href="{base}health">health</a>, <a href="{base}ready">ready</a>,
<a href="{base}v1/models">models</a></dd>
</dl>
<h2>From a terminal</h2>
<pre>curl {base}v1/responses -H "Content-Type: application/json"{header} \\
  -d '{{"input": "Who are you?"}}'</pre>
<h2>With OpenAI's SDK for Python</h2>
<pre>from openai import OpenAI

client = OpenAI(base_url="{base}v1", api_key="{key}")
print(client.responses.create(input="Who are you?").output_text)</pre>
<footer>gpt-oss-server {version}</footer>
</body>
</html>
"""


def landing_page(
    info: EngineInfo, names: Sequence[str], base: str, version: str, *, needs_key: bool = False
) -> str:
    """`base` is the server's address with a slash at its end."""
    return _PAGE.format(
        name=escape(names[0]),
        names=escape(", ".join(names)),
        description=escape(info.description),
        context=f"{info.context_length:,}",
        base=escape(base),
        keys="each request needs an API key" if needs_key else "any API key",
        key="YOUR_KEY" if needs_key else "unused",
        header=' -H "Authorization: Bearer YOUR_KEY"' if needs_key else "",
        version=escape(version),
    )
