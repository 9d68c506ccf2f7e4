"""What requests and operators write about MCP servers: names, permissions, secrets, flags."""

import contextlib
import copy
import json
import pickle
import re
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.mcp.calls import read_arguments
from tools.mcp.client import McpTool, Narrowed
from tools.mcp.endpoints import Credentials, McpSettingsError, StdioEndpoint, http_endpoint, public_form
from tools.mcp.failures import McpFailure
from tools.mcp.names import RESERVED_NAMESPACES, safe_names, safe_namespace
from tools.mcp.operator import parse_mcp_flag, parse_mcp_flags
from tools.mcp.permissions import parse_permissions
from tools.mcp.request import request_tool

URL = "https://mcp.example/mcp"


@given(st.lists(st.text(max_size=80), max_size=20), st.sets(st.sampled_from(["a", "b", "_", "x_2"])))
def test_every_name_gets_a_word_of_its_own(names: list[str], taken: set[str]) -> None:
    words = safe_names(names, taken=taken)
    assert sorted(words) == sorted(set(names))
    assert len(set(words.values())) == len(words)
    assert taken.isdisjoint(words.values())
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", word) for word in words.values())


def test_valid_names_stay_whatever_comes_before_them() -> None:
    words = {"a.b": "a_b_2", "a b": "a_b_3", "a_b": "a_b", "fine-1": "fine-1"}
    assert safe_names(["a.b", "a b", "a_b", "fine-1"]) == words


@pytest.mark.parametrize("label", sorted(RESERVED_NAMESPACES))
def test_a_label_that_means_something_else_gets_another_namespace(label: str) -> None:
    assert safe_namespace(label) == f"mcp_{label}"


HINTS: dict[str, Any] = {"read": {"readOnlyHint": True}, "write": None}


@pytest.mark.parametrize(
    ("setting", "needs"),
    [
        (None, ["read", "write"]),
        ("always", ["read", "write"]),
        ("never", []),
        ({"never": {"tool_names": ["read"]}}, ["write"]),
        ({"always": {"tool_names": ["write"]}}, ["read", "write"]),
        ({"always": {"tool_names": ["write"]}, "never": {"tool_names": ["read", "write"]}}, ["write"]),
        ({"never": {"read_only": True}}, ["write"]),
        ({"never": {"read_only": True, "tool_names": ["write"]}}, ["read", "write"]),
        ({"always": None, "never": {}}, ["read", "write"]),
    ],
)
def test_approval_is_needed_as_the_request_states(setting: Any, needs: list[str]) -> None:
    approval = parse_permissions(None, setting).approval
    assert [name for name, hints in HINTS.items() if approval.needed(name, hints)] == needs


@pytest.mark.parametrize(
    ("setting", "allowed"),
    [
        (None, ["read", "write"]),
        ([], []),
        (["read"], ["read"]),
        ({"tool_names": ["write"]}, ["write"]),
        ({"read_only": True}, ["read"]),
        ({"read_only": False}, ["write"]),
        ({}, ["read", "write"]),
    ],
)
def test_tools_are_allowed_as_the_request_states(setting: Any, allowed: list[str]) -> None:
    permissions = parse_permissions(setting)
    assert [name for name, hints in HINTS.items() if permissions.allows(name, hints)] == allowed


@pytest.mark.parametrize(
    ("allowed", "approval", "param"),
    [
        ("read", None, "allowed_tools"),
        ([1], None, "allowed_tools"),
        ({"tool_names": "read"}, None, "allowed_tools.tool_names"),
        ({"read_only": "yes"}, None, "allowed_tools.read_only"),
        (None, "sometimes", "require_approval"),
        (None, 5, "require_approval"),
        (None, {"never": ["read"]}, "require_approval.never"),
        (None, {"always": {"tool_names": [None]}}, "require_approval.always.tool_names"),
    ],
)
def test_wrong_permissions_are_refused_with_the_field(allowed: Any, approval: Any, param: str) -> None:
    with pytest.raises(McpSettingsError) as refused:
        parse_permissions(allowed, approval)
    assert refused.value.param == param


def test_credentials_can_be_sent_and_nothing_else() -> None:
    credentials = Credentials({"X-Api-Key": "hunter2hunter2", "authorization": "old one"}, "token-abc")
    assert credentials.for_sending() == {"X-Api-Key": "hunter2hunter2", "Authorization": "Bearer token-abc"}
    assert "hunter2" not in repr(credentials)
    assert credentials.redact("it is hunter2hunter2, Bearer token-abc") == "it is [redacted], [redacted]"
    for store in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="must not be stored"):
            store(credentials)
    with pytest.raises(TypeError):
        json.dumps(credentials)


@pytest.mark.parametrize(
    "headers",
    [
        *({"Host": "x"}, {"Content-Length": "5"}, {"mcp-session-id": "x"}, {"X-A": "line\r\nX-B: secret"}),
        *({"X A": "x"}, {"": "x"}, {"X-A": 5}, {5: "x"}, {"X-A": "snow ☃"}),
    ],
    ids=str,
)
def test_headers_that_would_change_the_request_are_refused_without_their_values(headers: Any) -> None:
    with pytest.raises(McpSettingsError) as refused:
        Credentials(headers)
    assert refused.value.param == "headers"
    assert "secret" not in str(refused.value)


def test_a_password_in_a_url_becomes_a_header_and_leaves_the_url() -> None:
    endpoint, authorization = http_endpoint("https://me:p%40ss@mcp.example:8443/a?key=hidden#part")
    assert endpoint.url == "https://mcp.example:8443/a?key=hidden"
    assert authorization == "Basic bWU6cEBzcw=="
    assert "hidden" not in repr(endpoint)


@pytest.mark.parametrize(
    "url",
    [
        *("", "mcp.example", "ftp://mcp.example", "file:///etc/passwd", "http://", "http:///mcp"),
        *("http://a b/", "http://x/\n", "http://x:99999/", "http://x:0/", "http://[::1/"),
        *("javascript:alert(1)", "http://x\\@y/", "gopher://x", "http://0177.0.0.1/", "http://x/\u00a0"),
    ],
)
def test_a_url_that_is_not_http_is_refused(url: str) -> None:
    with pytest.raises(McpSettingsError) as refused:
        http_endpoint(url)
    assert refused.value.param == "server_url"


def test_a_url_is_a_server_of_the_operators() -> None:
    server = parse_mcp_flag("docs = https://user:secret@mcp.example/mcp")
    assert (server.label, server.endpoint) == ("docs", http_endpoint(URL, trusted=True)[0])
    assert "secret" not in repr(server)
    assert server.credentials.for_sending()["Authorization"].startswith("Basic ")


def test_a_command_is_split_as_a_shell_would() -> None:
    server = parse_mcp_flag(f"files={sys.executable} -m 'my server' --root=/tmp")
    assert server.endpoint == StdioEndpoint(sys.executable, ("-m", "my server", "--root=/tmp"))


@pytest.mark.parametrize(
    ("flag", "sentence"),
    [
        *((f"{name}={URL}", "needs a name") for name in ("", "two words", "a.b")),
        *(("", "needs a name"), (URL, "needs a name")),
        (f"python={URL}", "means something else"),
        ("docs=", "neither URL nor command"),
        ("docs=ftp://mcp.example", "must start with http"),
        ("docs=http://:80", "docs"),
        ("docs=no-such-command-anywhere --flag", "was not found"),
        ("docs=sh -c 'unclosed", "cannot be split"),
    ],
)
def test_an_unreadable_flag_is_answered_with_its_form(flag: str, sentence: str) -> None:
    with pytest.raises(McpSettingsError, match=sentence) as refused:
        parse_mcp_flag(flag)
    assert refused.value.param == "--mcp"


def test_a_name_stands_for_one_server() -> None:
    assert [server.label for server in parse_mcp_flags(["a=http://x/", "b=http://x/"])] == ["a", "b"]
    with pytest.raises(McpSettingsError, match="Two MCP servers"):
        parse_mcp_flags(["a=http://x/", "a=http://y/"])


PUBLIC = {"type": "mcp", "server_label": "my docs", "require_approval": "never"}
HIDDEN = {"headers": {"X-Key": "secret-1234"}, "authorization": "secret-5678"}
SECRETIVE = {**PUBLIC, **HIDDEN, "server_url": "https://u:secret@mcp.example/mcp"}


def test_a_requests_tool_is_a_tool_of_its_own() -> None:
    tool = request_tool({**SECRETIVE, "allowed_tools": ["a"], "server_description": "Documents."}, {})
    assert isinstance(tool, McpTool)
    assert tool.declaration.namespace == "my_docs"
    assert tool.declaration.description == "Documents."
    assert not tool.needs_approval("a")
    assert "secret" not in repr(tool) + repr(vars(tool))


def test_a_label_alone_names_the_operators_server() -> None:
    operators = {"docs": McpTool("docs", http_endpoint(URL, trusted=True)[0])}
    tool = request_tool({"type": "mcp", "server_label": "docs", "require_approval": "never"}, operators)
    assert isinstance(tool, Narrowed)
    assert not tool.needs_approval("anything")
    assert operators["docs"].needs_approval("anything")


@pytest.mark.parametrize(
    ("tool", "param"),
    [
        *(({"server_label": label}, "server_label") for label in (None, "", 5, "x" * 200)),
        *(({"server_url": url}, "server_url") for url in (None, 5, "file:///etc/passwd")),
        ({"connector_id": "connector_dropbox"}, "connector_id"),
        ({"tunnel_id": "tunnel_1"}, "tunnel_id"),
        ({"headers": ["a"]}, "headers"),
        *(({"authorization": value}, "authorization") for value in (5, "a\nb")),
        ({"server_description": 5}, "server_description"),
        ({"require_approval": "maybe"}, "require_approval"),
        ({"server_label": "docs", "server_url": None, "authorization": "mine"}, "authorization"),
    ],
)
def test_a_wrong_tool_is_refused_with_its_field(tool: dict[str, Any], param: str) -> None:
    operators = {"docs": McpTool("docs", http_endpoint(URL, trusted=True)[0])}
    with pytest.raises(McpSettingsError) as refused:
        request_tool({"server_label": "x", "server_url": URL, **tool}, operators)
    assert refused.value.param == param


def test_the_stored_form_of_a_tool_has_no_secret() -> None:
    assert public_form(SECRETIVE) == {**PUBLIC, "server_url": URL}
    assert public_form({"server_url": "//u:secret@x"}) == {}


@given(st.text())
def test_any_text_is_arguments_or_a_sentence(text: str) -> None:
    with contextlib.suppress(McpFailure):
        json.dumps(read_arguments(text)).encode()


def test_an_empty_text_means_no_arguments_and_lone_surrogates_do_not_reach_a_server() -> None:
    assert [read_arguments(text) for text in ("", " ", "null", "{}")] == [{}] * 4
    assert read_arguments('{"\\ud800": ["\\udfff"]}') == {"?": ["?"]}
