# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Chromium without a window, for the tests that look at pages. Debian: `apt install chromium chromium-driver`."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


class Browser:
    """
    A browser with a page.

    Args:
        driver (`selenium.webdriver.Chrome`): Selenium's driver.
    """

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, page: Path, width: int = 1280, height: int = 900, hash: str = "", dark: bool = False) -> None:
        """Load a page in a viewport of a size, and wait until it is ready."""
        self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[scheme])
        self.driver.get("about:blank")  # else another hash of the same file would not load it
        self.driver.get(f"{page.as_uri()}{hash}")
        self.wait("document.documentElement.hasAttribute('data-ready')")

    def command(self, name: str, **arguments: Any) -> Any:
        """A command of the protocol of Chromium's developer tools."""
        return self.driver.execute_cdp_cmd(name, arguments)

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        return self.driver.execute_script(f"return {expression}")

    def wait(self, expression: str, seconds: float = 20.0) -> None:
        """Wait until a JavaScript expression is true."""
        end = time.monotonic() + seconds
        while not self.run(expression):
            assert time.monotonic() < end, f"never true: {expression}; {self.errors()}"
            time.sleep(0.01)

    def text(self, selector: str) -> str:
        """The text of an element."""
        return self.run(f"document.querySelector({selector!r}).textContent")

    def find(self, selector: str) -> Any:
        """An element."""
        return self.driver.find_element("css selector", selector)

    def hover(self, selector: str) -> None:
        """Move the pointer to an element."""
        from selenium.webdriver import ActionChains

        ActionChains(self.driver, duration=0).scroll_to_element(self.find(selector)).move_to_element(
            self.find(selector)
        ).perform()

    def press(self, *keys: str) -> None:
        """Press keys, wherever the focus is."""
        from selenium.webdriver import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def errors(self) -> list[str]:
        """What the console has shown since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser")]


def start_browser() -> Iterator[Browser]:
    """A browser, until the generator is closed. Skips the test if there is none."""
    pytest.importorskip("selenium", reason="needs the package selenium")
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (chromium and driver):
        pytest.skip("needs chromium and chromedriver (Debian: apt install chromium chromium-driver)")
    options = ChromeOptions()
    options.binary_location = chromium
    switches = ["headless=new", "no-sandbox", "disable-gpu", "disable-background-networking", "disable-dev-shm-usage"]
    for switch in switches:
        options.add_argument(f"--{switch}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    started = Chrome(options=options, service=Service(driver))
    try:
        yield Browser(started)
    finally:
        started.quit()
