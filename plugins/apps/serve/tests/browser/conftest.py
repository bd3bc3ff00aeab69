"""Fixtures of browser tests. They need Playwright in a separate environment: see README.md."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

collect_ignore_glob = ["*"] if importlib.util.find_spec("playwright") is None else []

EXAMPLES = Path(__file__).parents[5] / "examples"

#: Browser flags: it connects only to the server.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="session")
def browser():
    from playwright.sync_api import sync_playwright

    result = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=result, args=[*FLAGS])


@pytest.fixture(scope="session")
def servers():
    """Starts servers: ``servers(given, options...)`` returns the address."""
    processes = []

    def start(given, *options):
        command = [sys.executable, "-m", "tenonnx", "serve", "--no-browser", *options, *([str(given)] if given else [])]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ})
        processes.append(process)
        return process.stdout.readline().strip()

    yield start
    for process in processes:
        with process:
            process.terminate()


@pytest.fixture(scope="session")
def address(servers):
    """The address of a server for the examples."""
    return servers(EXAMPLES)


@pytest.fixture
def step_down():
    """Press the down arrow ``times`` times in the first drawing, once it is rendered."""

    def step(page, times=2):
        page.locator(".drawing[data-drawn]").first.wait_for()
        for _ in range(times):
            page.locator("canvas").first.press("ArrowDown")

    return step


@pytest.fixture
def opened(browser):
    """Opens pages: ``opened(address)``. Console errors and requests to other hosts fail the test."""
    contexts, output = [], []

    def open_page(address, **options):
        context = browser.new_context(
            **{"viewport": {"width": 1280, "height": 800}, "reduced_motion": "reduce", **options}
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("console", lambda message: output.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: output.append(str(error)))
        page.on(
            "request",
            lambda request: (
                None if "127.0.0.1" in request.url or request.url.startswith("blob:") else output.append(request.url)
            ),
        )
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    expected = ("status of 4", "ERR_")  # refused requests, which the page shows, and servers that a test ends
    reported = [text for text in output if not any(words in text for words in expected)]
    assert not reported
