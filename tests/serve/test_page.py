"""The page at `/` in Chromium: an answer streams, is stopped, tinted, and told plainly when it fails."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import tiny
from browser import Page, chromium
from live import PATIENCE, serving
from selenium.webdriver.common.keys import Keys

if TYPE_CHECKING:
    from collections.abc import Iterator

    from live import Live
    from selenium import webdriver

COUNT = "Count from 1 to 30."
GREEDY = {"temperature": 0, "max_tokens": 60}


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    with chromium(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture
def page(browser: webdriver.Chrome, demo: Live) -> Page:
    page = Page(browser, demo.url).open()
    page.run("localStorage.clear(); sessionStorage.clear()")
    return page.open()


@pytest.fixture(scope="session")
def shots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where screenshots go: the folder that SERVE_SHOTS names, so that they can be looked at."""
    folder = Path(os.environ.get("SERVE_SHOTS") or tmp_path_factory.mktemp("shots"))
    folder.mkdir(exist_ok=True)
    return folder


def luminance(colour: tuple[int, ...]) -> float:
    """Of sRGB, as WCAG defines it."""
    linear = [c / 12.92 if (c := byte / 255) <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for byte in colour]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: tuple[int, ...], other: tuple[int, ...]) -> float:
    """WCAG's ratio."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_an_answer_streams_and_is_the_text_that_the_api_gives(page: Page, demo: Live, shots: Path) -> None:
    page.set(**GREEDY)
    assert page.focused() == "message"
    page.watch()
    page.send(COUNT)
    states, times = zip(*page.states(), strict=True)
    page.browser.save_screenshot(str(shots / "light.png"))
    assert len(states) >= 5
    assert times[-1] - times[0] > 20
    assert all(after.startswith(before.rstrip("\n")) for before, after in pairwise(states))
    assert states[-1] == demo.text(COUNT, **GREEDY)
    assert page.complaints() == []


def test_drafted_text_is_tinted_and_the_figures_are_the_servers(page: Page, demo: Live) -> None:
    page.set(**GREEDY)
    page.send(COUNT)
    page.finished()
    whole = demo.chat(COUNT, **GREEDY, return_drafted=True)
    text = whole["choices"][0]["message"]["content"]
    tinted = "".join(text[start:end] for start, end in whole["choices"][0]["drafted"])
    timings = whole["timings"]
    assert "".join(span.get_attribute("textContent") for span in page.all(".drafted")) == tinted != ""
    foot = page.one(".foot").text
    assert f"{timings['acceptance_length']:.2f} tokens per pass" in foot
    assert f"{timings['predicted_n']} tokens, " in foot
    assert "tokens/s" in foot


def test_without_the_drafter_the_text_is_the_same_and_nothing_is_tinted(page: Page) -> None:
    page.set(temperature=0.8, seed=5, max_tokens=40)
    page.send(COUNT)
    drafted = page.finished()
    page.set(speculative=False)
    page.one("#new").click()
    page.send(COUNT)
    assert page.finished() == drafted
    assert page.all(".drafted") == []
    assert "per pass" not in page.one(".foot").text


@pytest.mark.parametrize("how", ["escape", "button"])
def test_an_answer_is_stopped_and_the_chat_goes_on(page: Page, demo: Live, how: str) -> None:
    page.set(temperature=0)
    page.send("Write a long story about a ship.")
    page.until(lambda: len(page.answer()) > 20)
    page.type(Keys.ESCAPE) if how == "escape" else page.one("#stop").click()
    page.until(lambda: not page.is_busy, 5)
    stopped = page.answer()
    assert page.one(".notice").text == "Stopped."
    assert page.focused() == "message"
    assert demo.text("Hi", max_tokens=1, temperature=0)  # the server is free again
    page.set(max_tokens=8)
    page.send("Go on.")
    page.until(lambda: len(page.all(".answer")) == 2)
    assert page.finished()
    assert page.run("return turns.map((turn) => turn.role)") == ["user", "assistant"] * 2
    assert page.run("return turns[1].content") == stopped


def test_shift_enter_begins_a_line_and_an_empty_message_is_not_sent(page: Page) -> None:
    page.send("   ")
    assert page.all("article") == []
    page.set(max_tokens=1)
    page.type("one", Keys.SHIFT + Keys.ENTER)
    page.type("two", Keys.NULL, Keys.ENTER)
    page.finished()
    assert page.run("return turns[0].content") == "one\ntwo"


def test_everything_is_reached_by_the_keyboard_and_the_focus_is_seen(page: Page) -> None:
    reached = []
    for _ in range(9):
        page.type(Keys.TAB)
        reached.append(page.focused() or page.browser.switch_to.active_element.tag_name)
        if reached[-1] != "body":
            assert page.run("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
    assert {"new", "set", "main", "button", "message", "send"} <= set(reached)


def test_dark_and_light_can_be_read(page: Page, shots: Path) -> None:
    for dark in (False, True):
        page.open(dark=dark)
        page.set(**GREEDY)
        page.send(COUNT)
        page.finished()
        page.browser.save_screenshot(str(shots / f"{'dark' if dark else 'light'}-finished.png"))
        ground = page.colour("body", "background-color")
        assert (luminance(ground) < 0.05) is dark
        ink = page.colour("body", "color")
        assert contrast(ink, ground) > 12
        assert contrast(ink, page.colour(".drafted", "background-color")) > 7
        assert contrast(page.colour(".foot", "color"), ground) > 4.5
        assert contrast(page.colour("#send", "color"), page.colour("#send", "background-color")) > 4.5


def test_a_phone_shows_all_of_it(page: Page, shots: Path) -> None:
    page.open(360, 640)
    page.set(**GREEDY)
    page.send("Write a Python program that prints a very long line, in a block of code.")
    page.finished()
    page.browser.save_screenshot(str(shots / "phone.png"))
    assert page.run("return document.documentElement.scrollWidth") == 360
    for control in ("#new", "#set", "#message", "#send"):
        box = page.one(control).rect
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 360
        assert box["y"] + box["height"] <= 640
        assert box["height"] >= 44
    page.one("#set").click()
    page.browser.save_screenshot(str(shots / "phone-settings.png"))
    assert page.one("#settings").rect["width"] <= 360


def test_markup_of_a_message_stays_text_and_strings_cannot_become_markup(page: Page) -> None:
    page.set(max_tokens=1)
    page.send("<img src=x onerror=document.title='taken'>")
    page.finished()
    assert page.all("article img") == []
    assert page.one(".user").text == "You\n<img src=x onerror=document.title='taken'>"
    assert (
        page.run("try { document.body.innerHTML = '<b>x</b>'; return 'set'; } catch { return 'refused'; }") == "refused"
    )


def test_a_server_that_asks_for_a_key_is_given_one(browser: webdriver.Chrome, locked: Live) -> None:
    page = Page(browser, locked.url).open()
    assert page.one("#drafter").text == "without a drafter"
    page.set(max_tokens=4)
    page.send("hello")
    page.until(lambda: page.one("#unlock").is_displayed())
    page.send("wrong")
    page.until(lambda: "wrong" in page.one("#refusal").text)
    page.send("a key")
    page.until(lambda: page.all(".foot") and not page.is_busy)
    assert "4 tokens" in page.one(".foot").text
    assert [each.text for each in page.all(".user")] == ["You\nhello"]
    page.send("again")
    page.until(lambda: len(page.all(".foot")) == 2)
    page.finished()
    assert not page.one("#unlock").is_displayed()


@pytest.mark.parametrize("wrong", ["Schlüssel", "ключ"])
def test_a_key_may_be_any_text(browser: webdriver.Chrome, locked: Live, wrong: str) -> None:
    page = Page(browser, locked.url).open()
    page.run("sessionStorage.clear()")
    page.open()
    page.set(max_tokens=4)
    page.send("hello")
    page.until(lambda: page.one("#unlock").is_displayed())
    page.send(wrong)
    page.until(lambda: "wrong" in page.one("#refusal").text)
    page.send("Schlüssel ключ")
    page.until(lambda: page.all(".foot") and not page.is_busy)
    assert "4 tokens" in page.one(".foot").text


def test_what_goes_wrong_is_said_and_the_message_is_kept(page: Page, demo: Live) -> None:
    page.run("document.querySelector('#message').value = arguments[0]", "word " * 4000)
    page.type(Keys.ENTER)
    page.until(lambda: page.all(".wrong"))
    assert "more than the context of 2048 holds" in page.one(".wrong").text
    assert page.one("#message").get_attribute("value").startswith("word word")
    assert page.run("return turns.length") == 0
    page.one("#message").clear()
    page.one("#message").click()
    page.run("const real = fetch; fetch = () => { fetch = real; return Promise.reject(new TypeError('down')); }")
    page.send("hello")
    page.until(lambda: "cannot be reached" in page.one(".wrong").text)
    page.set(max_tokens=2)
    page.type(Keys.ENTER)
    page.until(lambda: page.all(".foot"))
    assert page.finished()
    assert page.all(".wrong") == []


def test_a_server_that_ends_says_so_and_what_it_wrote_stays(browser: webdriver.Chrome, tmp_path: Path) -> None:
    target = tiny.write_target(tmp_path / "target.gguf", type="Q8_0")
    with serving("-m", target, "--no-draft", "-c", 2048, "--grace", 0.1) as live:
        page = Page(browser, live.url).open()
        page.send("hello")
        page.until(lambda: len(page.answer()) > 5)
        live.process.terminate()
        page.until(lambda: page.all(".wrong"))
        assert "shutting down" in page.one(".wrong").text
        assert page.answer()
        live.process.wait(PATIENCE)
        page.send("again")
        page.until(lambda: len(page.all(".wrong")) == 2)
        assert page.all(".wrong")[1].text == "The server cannot be reached."
        assert page.one("#message").get_attribute("value") == "again"


def test_a_new_chat_ends_the_answer_of_the_old_one(page: Page, demo: Live) -> None:
    page.set(temperature=0)
    page.send("Write a long story about a ship.")
    page.until(lambda: len(page.answer()) > 20)
    page.one("#new").click()
    page.until(lambda: not page.is_busy, 5)
    assert page.all("article") == []
    assert page.run("return turns.length") == 0
    assert page.focused() == "message"
    page.set(**GREEDY)
    page.send(COUNT)
    assert page.finished() == demo.text(COUNT, **GREEDY)


def test_an_answer_is_followed_unless_the_reader_has_scrolled_up(page: Page) -> None:
    page.open(800, 400)
    page.set(temperature=0, max_tokens=300)
    left = "const m = document.querySelector('main'); return m.scrollHeight - m.scrollTop - m.clientHeight"
    page.send(COUNT)
    page.until(lambda: page.run("return document.querySelector('main').scrollHeight > 500"))
    assert page.run(left) < 40
    page.run("document.querySelector('main').scrollTop = 0")
    page.until(lambda: page.run(left) > 100)
    page.finished()
    assert page.run("return document.querySelector('main').scrollTop") == 0


def test_a_screen_reader_hears_when_an_answer_begins_and_what_it_says(page: Page) -> None:
    assert page.one("#status").get_attribute("aria-live") == "polite"
    page.run(
        "new MutationObserver(() => (window.heard ??= []).push(document.querySelector('#status').textContent))"
        ".observe(document.querySelector('#status'), { childList: true })"
    )
    page.set(**GREEDY)
    page.send(COUNT)
    text = page.finished()
    heard = page.run("return window.heard")
    assert heard[0] == "Answering"
    assert len(heard) == 2
    assert heard[1].endswith(text)


FED = """
const flow = new Flow(document.createElement("div"));
for (const [text, spans] of arguments[0]) flow.add(text, spans);
flow.end();
const tinted = [...flow.root.querySelectorAll(".drafted")].map((node) => node.textContent);
const code = [...flow.root.querySelectorAll("pre")].map((node) => node.textContent);
return [flow.root.textContent, tinted, code, flow.text];
"""


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_text_is_the_same_however_it_is_cut(page: Page, size: int) -> None:
    text = "Say 😀:\n\n```python\nprint(`1`)\n```\n`code` and ``` in it\n``` x ` y\n| a | b |\nend\n``"
    pieces = [[text[i : i + size], [[0, 1]]] for i in range(0, len(text), size)]
    shown, tinted, code, kept = page.run(FED, pieces)
    assert kept == text
    assert shown == text.replace("```python\n", "").replace("```\n`code", "`code")
    assert code == ["print(`1`)\n"]
    if size == 3:
        assert len("".join(tinted)) >= len(pieces) - 4


def test_spans_count_code_points(page: Page) -> None:
    assert page.run(FED, [["a😀bé", [[1, 2], [3, 4]]]])[1] == ["😀", "é"]
