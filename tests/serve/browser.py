"""Chromium without a window, and the page in it.

Comes in: a server's address. Goes out: a browser that shows its page, and short names for what a user does there.
"""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from selenium.webdriver.remote.webelement import WebElement

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE = 60.0
WATCH = """
window.states = [];
new MutationObserver(() => {
  const text = [...document.querySelectorAll('.answer > .text')].at(-1)?.textContent ?? '';
  if (text && text !== window.states.at(-1)?.[0]) window.states.push([text, performance.now()]);
}).observe(document.querySelector('#log'), { childList: true, subtree: true });
"""


@contextmanager
def chromium(folder: Path) -> Iterator[webdriver.Chrome]:
    """A browser whose profile is ``folder``. Skips where there is none."""
    binary, driver = next(filter(None, map(shutil.which, BROWSERS)), None), shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("needs Chromium and its driver: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (*FLAGS, f"--user-data-dir={folder}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options, webdriver.ChromeService(driver))
    try:
        yield browser
    finally:
        browser.quit()


class Page:
    """The page, as a user sees it."""

    def __init__(self, browser: webdriver.Chrome, url: str) -> None:
        self.browser = browser
        self._url = url

    def open(self, width: int = 1000, height: int = 800, *, dark: bool = False) -> Page:
        """Loads it anew in a window of this size; a narrow one is a phone's."""
        phone = width < 500
        size = {"width": width, "height": height, "deviceScaleFactor": 2 if phone else 1, "mobile": phone}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        self.browser.get(self._url)
        self.until(lambda: self.one("#drafter").text != "")
        self.browser.get_log("browser")
        return self

    def one(self, selector: str) -> WebElement:
        """The first element."""
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[WebElement]:
        """Every element."""
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def run(self, script: str, *arguments: Any) -> Any:
        """What a script returns."""
        return self.browser.execute_script(script, *arguments)

    def until(self, condition: Callable[[], Any], seconds: float = PATIENCE) -> Any:
        """Waits for ``condition``."""
        return WebDriverWait(self.browser, seconds, 0.02).until(lambda _: condition())

    def type(self, *keys: str) -> None:
        """Types where the focus is."""
        self.browser.switch_to.active_element.send_keys(*keys)

    def send(self, text: str) -> None:
        """Types a message and Enter."""
        self.type(text, Keys.ENTER)

    def set(self, **values: object) -> None:
        """Changes settings; True and False are for switches."""
        self.one("#set").click()
        for name, value in values.items():
            field = self.one(f"#settings [name={name}]")
            if not isinstance(value, bool):
                field.clear()
                field.send_keys(str(value))
            elif field.is_selected() != value:
                field.click()
        self.one("#settings button[type=submit]").click()
        self.until(lambda: self.focused() == "message")

    @property
    def is_busy(self) -> bool:
        """Whether an answer is being written."""
        return self.one("#stop").is_displayed()

    def answer(self) -> str:
        """The last answer's text, as it stands there."""
        return self.run("return [...document.querySelectorAll('.answer > .text')].at(-1)?.textContent ?? ''")

    def finished(self) -> str:
        """The last answer, once it is whole."""
        self.until(lambda: not self.is_busy)
        return self.answer()

    def watch(self) -> None:
        """From now on notes each state in which the last answer is seen, and when."""
        self.run(WATCH)

    def states(self) -> list[tuple[str, float]]:
        """The different states since `watch`, with milliseconds, once the answer is whole."""
        self.finished()
        return [tuple(each) for each in self.run("return window.states")]

    def focused(self) -> str:
        """The id of the element that has the focus."""
        return self.browser.switch_to.active_element.get_attribute("id")

    def colour(self, selector: str, which: str) -> tuple[int, ...]:
        """A colour of an element as three bytes."""
        found = self.one(selector).value_of_css_property(which)
        return tuple(int(part) for part in found[found.index("(") + 1 : -1].split(",")[:3])

    def complaints(self) -> list[str]:
        """What the browser has logged since the last call."""
        return [entry["message"] for entry in self.browser.get_log("browser")]
