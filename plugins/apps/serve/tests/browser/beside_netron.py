"""Write the comparison with Netron in README.md, measured alternately in one browser.

``python plugins/apps/serve/tests/browser/beside_netron.py``; requires ``netron``. Times are CPU times of browser and
server together, so that other load has little influence.
"""

import importlib.metadata
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import onnx
from onnx import TensorProto, helper
from playwright.sync_api import sync_playwright

README = Path(__file__).parents[2] / "README.md"
SIZES = (10, 500, 3000, 10_000)
KNOWN = ("squeezenet", "densenet121", "inception_v2")  # from the onnx wheel
FRAMES, LONGEST = 10, 240_000


def save(path, count):
    """A model of ``count`` nodes, grouped by name: every fourth node has two inputs."""
    nodes, last = [], "x"
    for k in range(0, count, 4):
        group = f"/layer.{k // 200}/block.{k // 20}"
        nodes += [
            helper.make_node("Relu", [last], [f"a{k}"], name=f"{group}/relu.{k}"),
            helper.make_node("Tanh", [last], [f"b{k}"], name=f"{group}/tanh.{k}"),
            helper.make_node("Add", [f"a{k}", last], [f"c{k}"], name=f"{group}/add.{k}"),
            helper.make_node("Mul", [f"b{k}", f"c{k}"], [f"d{k}"], name=f"{group}/mul.{k}"),
        ]
        last = f"d{k}"
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 8]) for name in ("x", last)]
    graph = helper.make_graph(nodes[:count], "made", ends[:1], ends[1:] if count % 4 == 0 else [])
    if not graph.output:
        last = nodes[count - 1].output[0]
        graph.output.append(helper.make_tensor_value_info(last, TensorProto.FLOAT, ["n", 8]))
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def tree():
    """This process's descendants."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    result = {os.getpid()}
    while more := {each for each, parent in parents.items() if parent in result} - result:
        result |= more
    return result - {os.getpid()}


def spent():
    """CPU seconds of all running descendants."""
    total = 0
    for process in tree():
        try:
            total += sum(map(int, Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]))
        except OSError:
            continue
    return total / os.sysconf("SC_CLK_TCK")


def peak():
    """Peak memory of the tab's process in megabytes."""
    result = [0]
    for process in tree():
        try:
            if "--type=renderer" in Path(f"/proc/{process}/cmdline").read_text():
                status = Path(f"/proc/{process}/status").read_text()
                result.append(int(re.search(r"VmHWM:\s+(\d+)", status)[1]))
        except OSError:
            continue
    return max(result) / 1024


def open_ours(page, address):
    page.goto(address)
    page.locator("#tabs").wait_for()
    page.get_by_role("navigation").get_by_role("button", name="Look", exact=True).click()
    page.wait_for_selector('.drawing[data-drawn]:not([data-drawn="0"])')


def open_all(page, address):
    open_ours(page, address)
    page.locator(".drawing").evaluate("each => delete each.dataset.drawn")
    page.get_by_role("button", name="Open all").click()
    page.wait_for_selector(".busy", state="detached")
    page.wait_for_selector(".drawing[data-drawn]")


def open_netron(page, address):
    page.on("dialog", lambda dialog: dialog.accept())
    page.goto(address)
    consent = page.locator("#message-button")
    consent.or_(page.locator("#canvas .node").first).first.wait_for()
    if consent.is_visible():
        consent.click()
    page.locator("body.default #canvas .node").first.wait_for()


def zoom(page, session):
    """Scroll over the drawing, and wait for two frames after each step."""
    frames = "new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)))"
    page.mouse.move(500, 400)
    for k in range(FRAMES):
        page.keyboard.down("Control")
        page.mouse.wheel(0, 40 if k % 2 else -40)
        page.keyboard.up("Control")
        session.send("Runtime.evaluate", {"expression": frames, "awaitPromise": True})  # Netron removes eval


def measured(command, opens):
    """Seconds to the first drawing, milliseconds per zoom step, and peak megabytes; None on failure."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        address = re.search(r"http://\S+", server.stdout.readline())[0].rstrip("'")
        try:
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
                page = browser.new_page(viewport={"width": 1280, "height": 800})
                page.set_default_timeout(LONGEST)
                before = spent()
                opens(page, address)
                first = spent() - before
                session = page.context.new_cdp_session(page)
                before = spent()
                zoom(page, session)
                frame = (spent() - before) / FRAMES * 1000
                most = peak()
                browser.close()
                return first, frame, most
        except Exception as error:  # reported in the table
            sys.stderr.write(f"{command}: {error}\n")
            return None
        finally:
            server.terminate()


def rows(folder, times):
    netron = (
        "import netron, sys, time; port = netron.start(sys.argv[1], browse=False)[1]; "
        "print(f'http://localhost:{port}', flush=True); time.sleep(1e6)"
    )
    models = {}
    for size in SIZES:
        models[f"{size:,} nodes"] = folder / f"{size}.onnx"
        save(models[f"{size:,} nodes"], size)
    for name in KNOWN:
        models[name] = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / f"light_{name}.onnx"
    for name, path in models.items():
        ours = [sys.executable, "-m", "tenonnx", "serve", "--no-browser", str(path)]
        kinds = {"this page": (ours, open_ours), "groups open": (ours, open_all)}
        kinds["Netron"] = ([sys.executable, "-c", netron, str(path)], open_netron)
        result = {kind: [] for kind in kinds}
        for _ in range(times):
            for kind, (command, opens) in kinds.items():
                result[kind].append(measured(command, opens))
        cells = [name]
        for number, form in enumerate(("{:.1f} s", "{:.0f} ms", "{:.0f} MB")):
            for runs in result.values():
                known = [run[number] for run in runs if run is not None]
                cells.append(form.format(statistics.median(known)) if known else "none")
        sys.stdout.write(f"{cells}\n")
        yield cells


def main():
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    kinds = ("this page", "all open", "Netron")
    columns = [f"{what}, {kind}" for what in ("first drawing", "step of zoom", "peak memory") for kind in kinds]
    with tempfile.TemporaryDirectory() as folder:
        lines = [["model", *columns], ["---:"] * 10, *rows(Path(folder), times)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    version = importlib.metadata.version("netron")
    text = f"Netron {version}, Python {platform.python_version()}; the median of {times} in turns.\n\n{table}\n"
    before, _, after = README.read_text().partition("<!-- beside netron -->\n")
    _, _, after = after.partition("<!-- end -->\n")
    README.write_text(f"{before}<!-- beside netron -->\n{text}<!-- end -->\n{after}")


if __name__ == "__main__":
    main()
