"""Conversations in a real browser: their addresses, their names, and two tabs that write the same one."""

from typing import Any

import httpx
import pytest

from gpt_oss_server.settings import Settings
from tests.doubles.serving import scripted, serving
from tests.doubles.waiting import wait_until
from tests.playground.conftest import Opened, Visiting, press, says, send
from tests.playground.test_surroundings import behind_prefix, give_key

pytestmark = pytest.mark.browser


def bubbles(page: Any) -> list[str]:
    return [each.inner_text() for each in page.locator(".bubble").all()]


def test_two_tabs_lose_no_message(opened: Opened) -> None:
    first = (found := opened(scripted(*map(says, ("One.", "Two.", "Three.", "Four."))))).page
    found.asked("First")
    second = found.tab()
    second.goto(first.url)
    second.get_by_text("One.", exact=True).wait_for()
    send(second, "From the second")
    second.get_by_text("Two.", exact=True).wait_for()
    first.get_by_text("Two.", exact=True).wait_for()  # the other tab follows
    send(first, "From the first")
    second.get_by_text("Three.", exact=True).wait_for()
    expected = ["First", "From the second", "From the first"]
    assert bubbles(first) == bubbles(second) == expected
    for page in (first, second):
        page.reload()
        page.get_by_text("Three.", exact=True).wait_for()
        assert bubbles(page) == expected


# Both tabs add a message to the same one before either has learnt of the other's.
DIVERGED = """async () => {
  const { newConversation, add } = await import("/web/chat/tree.js");
  const { hasMore, merged } = await import("/web/chat/merge.js");
  const step = (sequence, status) => ({ sequence, status, items: [], input: [] });
  const [base, question] = add(newConversation(), null, { role: "user", text: "base" });
  const [begun, node] = add(base, question, { role: "assistant", steps: [step(3, "in_progress")] });
  const [a] = add(begun, node, { role: "user", text: "a" });
  const ended = { ...begun.nodes[node], steps: [step(9, "completed")] };
  const [b] = add({ ...begun, nodes: { ...begun.nodes, [node]: ended } }, node, { role: "user", text: "b" });
  const [ab, ba] = [merged(a, b), merged(b, a)];
  return {
    texts: [ab, ba].map(({ nodes }) => Object.values(nodes).map((each) => each.text).filter(Boolean).sort()),
    children: [ab, ba].map(({ nodes }) => nodes[node].children.length),
    status: [ab, ba].map(({ nodes }) => nodes[node].steps[0].status),
    stays: [ab.head === a.head, ba.head === b.head, merged(begun, a).head === a.head],
    more: [hasMore(a, b), hasMore(b, a), hasMore(ab, ba), hasMore(begun, a)],
  };
}"""


def test_what_two_tabs_wrote_at_the_same_time_are_two_branches(opened: Opened) -> None:
    assert opened(scripted(says("."))).page.evaluate(DIVERGED) == {
        "texts": [["a", "b", "base"]] * 2,
        "children": [2, 2],
        "status": ["completed", "completed"],
        "stays": [True, True, True],
        "more": [True, True, False, False],
    }


def test_a_conversation_has_an_address_with_back_and_forward(opened: Opened) -> None:
    page = (found := opened(scripted(says("One."), says("Two.")))).page
    found.asked("First")
    first = page.url
    assert page.title() == "First · gpt-oss-server"
    press(page, "New conversation")
    found.asked("Second")
    assert page.url != first
    page.go_back()
    page.get_by_text("See every token").wait_for()
    page.go_back()
    page.get_by_text("One.", exact=True).wait_for()
    page.go_forward()
    page.go_forward()
    page.get_by_text("Two.", exact=True).wait_for()
    page.goto(first)
    page.get_by_text("One.", exact=True).wait_for()
    page.goto(f"{found.base}c/nowhere")
    page.get_by_role("alert").get_by_text("This browser has no conversation of this address").wait_for()
    assert page.url == found.base


def test_a_conversation_is_renamed_and_comes_back_after_it_was_deleted(opened: Opened) -> None:
    page = (found := opened(scripted(says("One.")))).page
    found.asked("First")
    page.get_by_label("Rename").click()
    page.get_by_label("Name of the conversation").fill("Tides")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Tides").wait_for()
    page.get_by_label("Delete").click()
    page.get_by_text("See every token").wait_for()
    assert page.locator(".list li").count() == 0
    press(page, "Undo")
    page.get_by_text("One.", exact=True).wait_for()
    page.reload()
    page.get_by_role("heading", name="Tides").wait_for()


def test_an_address_of_the_server_s_store_opens_in_another_browser(visit: Visiting) -> None:
    with serving(scripted(says("One."), says("Two.")), Settings(api_key=("sesame",))) as url:
        found = visit(url)
        found.open()
        give_key(found.page)
        found.page.get_by_text("Chat with scripted").wait_for()
        found.asked("First")
        other = visit(url)
        other.page.goto(f"{other.base}c/{found.response_id()}")
        give_key(other.page)
        other.page.get_by_text("One.", exact=True).wait_for()
        assert "Two." in other.asked("Go on", 2).inner_text()
        for each in (found, other):
            each.ignore("401")


@pytest.mark.chromium("Playwright cannot allow Firefox to read the clipboard")
def test_a_message_has_a_link(visit: Visiting, opened: Opened) -> None:
    page = (found := opened(scripted(*map(says, ("One.", "Two.", "Three."))))).page
    found.context.grant_permissions(["clipboard-read", "clipboard-write"])
    found.asked("First")
    found.asked("Second", 2)
    page.get_by_label("Copy a link to this message").nth(1).click()
    page.get_by_text("The link is copied").wait_for()
    link = page.evaluate("navigator.clipboard.readText()")
    page.get_by_label("Regenerate").last.click()  # the link's branch is left
    page.get_by_text("Three.", exact=True).wait_for()
    for each in (visit(found.url), found):
        each.page.goto(link)
        each.page.locator(".message.linked", has_text="One.").wait_for()
        each.page.get_by_text("Two.", exact=True).wait_for()


def test_addresses_work_behind_a_prefix(visit: Visiting) -> None:
    with serving(scripted(says("One.")), wrap=behind_prefix) as url:
        page = (found := visit(url.removesuffix("/v1") + "/box/v1")).open()
        found.asked("First")
        assert "/box/c/" in page.url
        page.reload()
        page.get_by_text("One.", exact=True).wait_for()


LOOK = "dispatchEvent(new Event('visibilitychange'))"  # as when the page is shown again


def files(url: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = httpx.get(f"{url}/files").json()["data"]
    return found


def test_conversations_that_the_server_keeps_are_in_every_browser(opened: Opened, visit: Visiting) -> None:
    first = (found := opened(scripted(*map(says, ("One.", "Two.", "Three."))))).page
    found.asked("First")
    other = visit(found.url)
    second = other.open()
    for page in (first, second):
        page.get_by_label("Keep on the server").check()
    second.get_by_role("link", name="First").click()
    second.get_by_text("One.", exact=True).wait_for()
    send(second, "From the second")
    second.get_by_text("Two.", exact=True).wait_for()
    wait_until(
        lambda: (
            b"From the second" in httpx.get(f"{found.url}/files/{files(found.url)[-1]['id']}/content").content
        )
    )
    first.evaluate(LOOK)
    first.get_by_text("Two.", exact=True).wait_for()
    assert bubbles(first) == bubbles(second) == ["First", "From the second"]
    wait_until(lambda: len(files(found.url)) == 1)
    second.get_by_role("button", name="Delete").first.click()
    wait_until(lambda: files(found.url) == [])
    first.evaluate(LOOK)
    first.get_by_role("link", name="First").wait_for(state="detached")


def test_two_browsers_that_write_at_the_same_time_lose_no_message(opened: Opened, visit: Visiting) -> None:
    first = (found := opened(scripted(*map(says, ("One.", "Two.", "Three."))))).page
    found.asked("First")
    first.get_by_label("Keep on the server").check()
    wait_until(lambda: len(files(found.url)) == 1)
    second = (other := visit(found.url)).open()
    second.get_by_label("Keep on the server").check()
    second.get_by_role("link", name="First").click()
    second.get_by_text("One.", exact=True).wait_for()
    for page, words in ((first, "Left"), (second, "Right")):
        page.route("**/v1/files**", lambda route: route.abort())
        send(page, words)
        page.get_by_text("Two." if words == "Left" else "Three.", exact=True).wait_for()
    first.get_by_text("Not kept on the server").wait_for()
    for page in (first, second):
        page.unroute("**/v1/files**")
        page.evaluate(LOOK)
    wait_until(lambda: looked(first, second) and {"Left", "Right"} <= texts(first) & texts(second))
    wait_until(lambda: looked(first, second) and len(files(found.url)) == 1)
    for each, page in ((found, first), (other, second)):
        page.wait_for_load_state("networkidle")
        page.wait_for_timeout(2_000)  # until what a last look has begun is over
        each.ignore("ERR_FAILED")
        each.ignore("404")  # both may delete what either has replaced


def looked(*pages: Any) -> bool:
    for page in pages:
        page.evaluate(LOOK)
    return True


def texts(page: Any) -> set[str]:
    """Of all branches of the conversation."""
    return set(
        page.evaluate(
            "async () => Object.values((await import('/web/chat/store.js')).current().nodes).map(n => n.text)"
        )
    )
