"""Update the screenshots in docs/how-to/page.md: ``python plugins/apps/serve/tests/browser/pictures.py``."""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from playwright.sync_api import expect, sync_playwright

ROOT = Path(__file__).parents[5]
FOLDER = ROOT / "docs" / "how-to" / "page"


def take(browser, address):
    """Take a screenshot of the page in each of its states."""

    def opened(way, **options):
        page = browser.new_context(**{"viewport": {"width": 1100, "height": 640}, **options}).new_page()
        page.goto(address)
        page.get_by_role("button", name=way, exact=True).last.click()
        expect(page.get_by_role("heading", name="Export", exact=True)).to_be_visible()
        return page

    def go(page, tab):
        page.get_by_role("navigation").get_by_role("button", name=tab, exact=True).click()

    def start(page, name):
        page.get_by_role("button", name=name, exact=True).last.click()

    def keep(page, name):
        page.wait_for_timeout(700)  # animations end
        page.screenshot(path=FOLDER / f"{name}.png")

    page = opened("exports/resnet-dynamo.onnx")
    start(page, "Export")
    expect(page.get_by_text("Passed ✓")).to_be_visible()
    keep(page, "passed")
    go(page, "Look")
    page.wait_for_selector(".drawing[data-drawn]")
    page.locator("canvas").focus()
    for _ in range(2):
        page.keyboard.press("ArrowDown")
    page.get_by_role("button", name="Histogram").first.click()
    expect(page.locator(".histogram")).to_be_visible()
    keep(page, "look")

    page = opened("decoder/decoder.onnx")
    page.get_by_label("Opset", exact=True).select_option("7")
    start(page, "Export")
    expect(page.get_by_text("Not possible ✗")).to_be_visible()
    keep(page, "refused")

    page = opened("bert/bert.onnx")
    page.get_by_text("More", exact=True).click()
    page.get_by_label("Exact", exact=True).check()
    page.get_by_label("Domains", exact=True).fill("ai.onnx")
    page.get_by_text("More", exact=True).click()
    start(page, "Export")
    expect(page.get_by_text("Failed ✗")).to_be_visible()
    keep(page, "failed")

    page = opened("quantized/resnet.onnx")
    go(page, "Compare")
    page.get_by_label("A model").select_option("quantized/resnet-qdq.onnx")
    expect(page.locator(".sides .drawing[data-drawn]")).to_have_count(2)
    page.wait_for_timeout(1500)
    page.evaluate("document.querySelector('main').scrollTo(0, 1e5)")
    keep(page, "compare")

    page = opened("digits/digits.onnx", color_scheme="dark")
    go(page, "Run")
    start(page, "Run")
    expect(page.get_by_role("region", name="Outputs")).to_be_visible()
    keep(page, "run-dark")

    page = opened("digits_cnn/digits-cnn.onnx")
    go(page, "Explain")
    with tempfile.TemporaryDirectory() as folder:
        images = np.load(ROOT / "examples" / "digits_cnn" / "digits.npz")["images"][:4]
        np.savez(Path(folder) / "images.npz", images=images)
        page.get_by_label("Values of inputs").set_input_files(Path(folder) / "images.npz")
        expect(page.get_by_text("images.npz")).to_be_visible()
    start(page, "Explain")
    expect(page.locator("canvas.heat").first).to_be_visible()
    keep(page, "explain")

    page = opened("exports/vit-dynamo.onnx", viewport={"width": 390, "height": 720})
    go(page, "Look")
    page.wait_for_selector(".drawing[data-drawn]")
    keep(page, "phone")


def main():
    expect.set_options(timeout=60_000)
    FOLDER.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "tenonnx", "serve", "--no-browser", str(ROOT / "examples")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server, sync_playwright() as playwright:
        address = server.stdout.readline().strip()
        assert re.match("http://127", address)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        try:
            take(browser, address)
        finally:
            browser.close()
            server.terminate()


if __name__ == "__main__":
    main()
