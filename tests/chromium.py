"""Where the browser is that drives our pages in tests."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def executable() -> str:
    found = [path for name in NAMES if (path := shutil.which(name))]
    assert found, f"None of {', '.join(NAMES)} is on the PATH; the browser tests need one."
    return found[0]


@contextmanager
def opened(path: Path, width: int = 1100, height: int = 900) -> Iterator[tuple[Page, list[str]]]:
    """The page in a headless browser without a network, and the complaints it makes while it is used."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": height})
        complaints: list[str] = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
        page.on(
            "request",
            lambda request: (
                None
                if request.url.startswith(("file:", "data:", "blob:"))
                else complaints.append(request.url)
            ),
        )
        page.context.set_offline(True)
        page.goto(path.resolve().as_uri())
        yield page, complaints
        browser.close()
