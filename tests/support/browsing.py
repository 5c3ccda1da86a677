"""Chromium of this machine, for tests of pages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start it. Without one the test is skipped and says so, except in CI, where it fails."""
    found = next((path for path in map(shutil.which, NAMES) if path), None)
    if found is None:
        if os.environ.get("CI"):
            raise AssertionError(f"no browser: none of {', '.join(NAMES)} is on the PATH")
        pytest.skip(f"NOT TESTED, the page in a browser: none of {', '.join(NAMES)} is on the PATH")
    with sync_playwright() as playwright:
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=found, args=options)
        yield browser
        browser.close()
