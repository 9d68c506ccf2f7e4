"""Only public addresses pass, however they are written, and a name passes only if all its addresses do."""

import pytest

from tools.addresses import AddressRefused, is_public, resolve_allowed, system_resolver

PRIVATE = """
127.0.0.1 127.8.9.1 0.0.0.0 0.1.2.3 10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 169.254.169.254 169.254.1.1
100.64.0.1 100.100.100.200 168.63.129.16 192.0.0.192 192.0.2.1 192.88.99.1 198.18.0.1 198.51.100.7 203.0.113.9
224.0.0.1 239.255.255.250 240.0.0.1 255.255.255.255
:: ::1 ::127.0.0.1 ::ffff:127.0.0.1 ::ffff:7f00:1 ::ffff:169.254.169.254 ::ffff:10.0.0.1 fe80::1 fe80::1%eth0
fc00::1 fd00:ec2::254 fec0::1 ff02::1 2001:db8::1 2002:7f00:1:: 2002:a00:1:: 64:ff9b::7f00:1
64:ff9b::a9fe:a9fe ::ffff:8.8.8.8
64:ff9b::808:808 2600::5efe:7f00:1 64:ff9b:1::1 2001:0:4136:e378:8000:63bf:3fff:fdd2 100::1 3fff::1 5f00::1
"""
ODD = ("", "localhost", "2130706433", "0x7f.1", "127.1", "1.1.1.1/8", "[::1]", "１.1.1.1")


@pytest.mark.parametrize("text", [*PRIVATE.split(), *ODD])
def test_private_addresses_and_text_that_is_no_address_are_refused(text: str) -> None:
    assert not is_public(text)


def test_public_addresses_pass() -> None:
    for address in ("1.1.1.1", "8.8.8.8", "93.184.216.34", "2606:4700:4700::1111", "2a00:1450:4001::1"):
        assert is_public(address)


async def test_one_private_address_among_public_ones_refuses_the_name() -> None:
    async def mixed(host: str, port: int) -> list[str]:
        return ["8.8.8.8", "127.0.0.1"]

    with pytest.raises(AddressRefused, match="not on the public internet"):
        await resolve_allowed("mixed.example", 443, resolver=mixed)
    allowed = await resolve_allowed("mixed.example", 443, resolver=mixed, allow_private=True)
    assert allowed == ["8.8.8.8", "127.0.0.1"]


async def test_a_name_that_does_not_resolve_is_refused_with_a_sentence() -> None:
    async def nowhere(host: str, port: int) -> list[str]:
        if host == "empty.example":
            return []
        raise OSError("no such host")

    for host, words in (("nowhere.example", "could not be resolved"), ("empty.example", "has no address")):
        with pytest.raises(AddressRefused, match=words):
            await resolve_allowed(host, 443, resolver=nowhere)


LOOPBACKS = ("127.0.0.1", "2130706433", "0x7f000001", "127.1", "0177.0.0.1", "::1", "localhost")


@pytest.mark.parametrize("host", [*LOOPBACKS, "a" * 64 + ".example"])
async def test_the_system_resolver_lets_no_spelling_of_loopback_and_no_endless_name_pass(host: str) -> None:
    with pytest.raises(AddressRefused):
        await resolve_allowed(host, 80, resolver=system_resolver)
