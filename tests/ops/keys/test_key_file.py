"""The file of keys: what a line may say, and the sentence about each mistake."""

import hashlib

import pytest

from gpt_oss_server.caller.access import Access, KeyLimits
from gpt_oss_server.caller.key_file import digest_of, read_keys
from gpt_oss_server.settings import SettingsError

KEY, OTHER = "sk-2b7e151628aed2a6", "sk-9f86d081884c7d65"
DIGEST = hashlib.sha256(KEY.encode()).hexdigest()
TOOLS = ("browser", "python", "mcp")
SIZES = "must be a size in bytes such as 1048576, 512KiB, 64MiB or 2GiB, at least 128MiB"


def read(text: str, defaults: KeyLimits | None = None) -> dict[bytes, Access]:
    return dict(read_keys(text, "keys", defaults or KeyLimits(), TOOLS))


def only(text: str, defaults: KeyLimits | None = None) -> Access:
    [access] = read(text, defaults).values()
    return access


def test_a_line_is_a_key_and_comments_and_empty_lines_are_none() -> None:
    found = read(f"# ours\n\n  {KEY}\n\t# more\n{OTHER}\r\n")
    assert list(found) == [digest_of(KEY), digest_of(OTHER)]


def test_a_key_without_a_name_has_an_owner_of_its_own_that_does_not_show_it() -> None:
    one, other = (only(key) for key in (KEY, OTHER))
    assert one.owner != other.owner
    assert one.owner == only(f"  {KEY} rpm=5").owner
    assert DIGEST[:12] not in one.owner
    assert KEY not in repr(one)


def test_a_hash_stands_for_its_key() -> None:
    assert read(f"sha256:{DIGEST} name=shop") == read(f"{KEY} name=shop")


def test_fields_set_the_limits_the_tools_and_the_name() -> None:
    access = only(
        f"{KEY} name=shop rpm=600 tpm=200_000 concurrent=8 background=2 kernels=1 memory=1GiB stored=64MiB"
        " tools=python,mcp"
    )
    assert (access.owner, access.name) == ("shop", "shop")
    assert access.limits == KeyLimits(600, 200_000, 8, 2, 1, 2**30, 64 * 2**20)
    assert [access.allows(tool) for tool in TOOLS] == [False, True, True]


def test_a_key_has_the_defaults_unless_its_line_says_otherwise() -> None:
    defaults = KeyLimits(rpm=10, tpm=1000)
    assert only(KEY, defaults).limits == defaults
    assert only(f"{KEY} rpm=none", defaults).limits == KeyLimits(tpm=1000)
    everything, nothing = only(KEY), only(f"{KEY} tools=none")
    assert all(map(everything.allows, TOOLS))
    assert not any(map(nothing.allows, TOOLS))


def test_two_keys_of_one_name_are_one_owner() -> None:
    found = read(f"{KEY} name=shop rpm=5\n{OTHER} name=shop rpm=5")
    assert [access.owner for access in found.values()] == ["shop", "shop"]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (f"{KEY} shop", "FIELD=VALUE"),
        (f"{KEY} colour=red", "FIELD=VALUE"),
        (f"{KEY} rpm=fast", "rpm must be a whole number"),
        (f"{KEY} rpm=0", "at least 1"),
        (f"{KEY} stored=big", "stored must be a size"),
        (f"{KEY} memory=64MiB", f"memory {SIZES}"),
        (f"{KEY} name=a name=b", "name is set twice"),
        (f"{KEY} name=a/b", "a name must have"),
        (f"{KEY} name=key-1", "must not begin"),
        (f"{KEY} tools=browser,shell", "not 'shell'"),
        (f"{KEY}\n{KEY} name=again", "earlier line"),
        (f"{KEY} name=shop rpm=5\n{OTHER} name=shop", "other limits or tools"),
        (f"{KEY} name=shop tools=none\n{OTHER} name=shop", "other limits or tools"),
    ],
)
def test_a_mistake_is_a_sentence_with_the_line_and_without_the_key(text: str, part: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read(text)
    message = str(caught.value)
    assert part in message
    assert message.startswith(f"keys, line {len(text.splitlines())}: ")
    assert "sk-" not in message
