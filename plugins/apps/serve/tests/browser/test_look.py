"""Drawing, downloads, broken models, comparison, and reconnection, in a browser."""

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET

import numpy as np
import onnx
import pytest
from axe_playwright_python.sync_playwright import Axe
from onnx import TensorProto, helper, numpy_helper
from playwright.sync_api import expect

#: for machines with other load
expect.set_options(timeout=60_000)

WIDTHS = (1600, 1280, 640, 390)
MAIN = "document.querySelector('main')"
node = helper.make_node


def info(name, shape=("n", 4)):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape))


def save(path, nodes, weights=(), outputs=("y",), **more):
    graph = helper.make_graph(nodes, "made", [info("x")], [*map(info, outputs)], list(weights))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("lab", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9, **more), path)


def layered(scale=1.0, activation="Relu", axis=-1):
    weight = numpy_helper.from_array(np.eye(4, dtype=np.float32) * np.float32(scale), "fc.weight")
    nodes = [
        node("MatMul", ["x", "fc.weight"], ["hidden"], name="fc"),
        node(activation, ["hidden"], ["r"], name="act"),
        node("ExpNeg", ["r"], ["e"], name="call", domain="lab"),
        node("Softmax", ["e"], ["y"], name="soft", axis=axis),
    ]
    return nodes, [weight]


def function():
    body = [node("Exp", ["a"], ["b"]), node("Neg", ["b"], ["c"])]
    made = helper.make_function("lab", "ExpNeg", ["a"], ["c"], body, [helper.make_opsetid("", 17)])
    made.doc_string = "of a lab"
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("models")
    save(made / "a.onnx", *layered(), functions=[function()])
    save(made / "b.onnx", *layered(scale=3.0, activation="Tanh", axis=0), functions=[function()])
    save(
        made / "cycle.onnx",
        [
            node("Add", ["x", "c"], ["a"], name="add"),
            node("Tanh", ["a"], ["c"], name="tanh"),
            node("Exp", ["c"], ["y"], name="exp"),
        ],
    )
    return made


@pytest.fixture(scope="module")
def address(servers, folder):
    return servers(folder)


def open_model(page, name):
    page.get_by_role("button", name=name, exact=True).last.click()
    expect(page.locator("#tabs")).to_be_visible()


def tab(page, name):
    page.get_by_role("navigation").get_by_role("button", name=name, exact=True).click()


def drawn(page, count):
    expect(page.locator(".drawing")).to_have_attribute("data-drawn", str(count))


def pane(page):
    return page.locator(".pane")


def check(page, what):
    """Accessibility: axe reports nothing, and nothing is wider than the page."""
    result = Axe().run(page)
    reported = [(each["id"], [node["html"][:200] for node in each["nodes"]]) for each in result.response["violations"]]
    assert not reported, what
    for wide, room in (
        ("document.documentElement.scrollWidth", "innerWidth"),
        (f"{MAIN}.scrollWidth", f"{MAIN}.clientWidth"),
    ):
        assert page.evaluate(f"{wide} <= {room}"), f"{what} is wider than the page"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_fits_every_width_and_keeps_nobody_out(step_down, opened, address, scheme):
    page = opened(address, color_scheme=scheme)

    def everywhere(what):
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 800})
            check(page, f"{what} at {width}, {scheme}")

    open_model(page, "cycle.onnx")
    drawn(page, 6)
    pane(page).get_by_role("button", name="tanh", exact=True).click()
    expect(pane(page)).to_contain_text("is part of a cycle")
    everywhere("a broken model")
    page.locator("#home").click()
    open_model(page, "a.onnx")
    tab(page, "Look")
    drawn(page, 6)
    page.get_by_label("Color by").select_option("multiplications")
    expect(page.locator(".costs")).to_contain_text("in total")
    pane(page).get_by_role("button", name="x", exact=True).click()
    pane(page).get_by_role("button", name="Path to the output").click()
    expect(pane(page)).to_contain_text("5 steps to the output")
    everywhere("a path, and costs")
    tab(page, "Compare")
    page.get_by_label("A model").select_option("b.onnx")
    expect(page.locator(".sides .drawing[data-drawn]")).to_have_count(2)
    expect(page.locator(".both")).to_contain_text("MatMul")  # the first node that diverges
    step_down(page, 1)
    expect(page.locator(".both")).to_contain_text("Tanh")
    everywhere("a comparison")


def test_a_broken_model_is_drawn_in_red_and_cannot_be_exported(opened, address):
    page = opened(address)
    open_model(page, "cycle.onnx")
    drawn(page, 6)
    expect(pane(page)).to_contain_text("has a cycle")
    reds = page.evaluate(
        """() => {
            const canvas = document.querySelector("canvas");
            const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            let count = 0;
            for (let k = 0; k < data.length; k += 4) {
                count += data[k] === 179 && data[k + 1] === 38 && data[k + 2] === 47;
            }
            return count;
        }"""
    )
    assert reds > 300, "borders and the line that closes the cycle"
    tab(page, "Export")
    expect(page.locator("main")).to_contain_text("breaks a rule of ONNX")
    expect(page.get_by_role("button", name="Export", exact=True)).to_have_count(1)
    page.get_by_role("button", name="Look at its faults").click()
    drawn(page, 6)


def test_values_lead_from_node_to_node_and_to_pages_of_functions(opened, address):
    page = opened(address)
    open_model(page, "a.onnx")
    tab(page, "Look")
    drawn(page, 6)
    pane(page).get_by_role("button", name="x", exact=True).click()
    pane(page).get_by_role("button", name="fc", exact=True).click()
    expect(pane(page).locator("h2")).to_contain_text("MatMul")
    pane(page).get_by_role("button", name="hidden", exact=True).click()
    expect(pane(page).locator("h2")).to_have_text("hidden")
    expect(pane(page)).to_contain_text("Comes from")
    pane(page).get_by_role("button", name="act", exact=True).click()
    expect(pane(page).locator("h2")).to_contain_text("Relu")
    pane(page).get_by_role("button", name="call", exact=True).click()
    pane(page).get_by_role("button", name="The function on a page of its own").click()
    drawn(page, 4)
    expect(pane(page)).to_contain_text("of a lab")
    page.get_by_role("button", name="Back to the model").click()
    drawn(page, 6)
    # an edge, by the pointer: between the first two boxes, one below the other
    box = page.locator("canvas").bounding_box()
    page.get_by_role("button", name="To the top").click()
    for y in range(60, 260, 3):
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + y)
        if "over" in (page.locator("canvas").get_attribute("class") or "") and not page.locator("canvas").get_attribute(
            "title"
        ):
            page.mouse.click(box["x"] + box["width"] / 2, box["y"] + y)
            break
    expect(pane(page)).to_contain_text("Goes to")
    expect(pane(page).locator("h2")).to_have_text("x")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_drawing_weights_and_values_are_taken_away(opened, address, tmp_path, scheme, step_down):
    page = opened(address, color_scheme=scheme)
    open_model(page, "a.onnx")
    tab(page, "Look")
    drawn(page, 6)

    def taken(role, name):
        with page.expect_download() as download:
            page.get_by_role(role, name=name, exact=True).click()
        download.value.save_as(tmp_path / download.value.suggested_filename)
        return tmp_path / download.value.suggested_filename

    root = ET.parse(taken("button", "SVG")).getroot()
    ground, *_ = root
    paper = "#15181e" if scheme == "dark" else "#ffffff"
    assert (ground.get("fill"), ground.get("width")) == (paper, root.get("width"))
    texts = {each.text: each.get("fill") for each in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"MatMul", "Relu", "ExpNeg", "Softmax", "x", "y"} <= set(texts)
    assert all(contrast(color, box_color(scheme)) >= 4.5 for color in texts.values())
    assert taken("button", "PNG").read_bytes().startswith(b"\x89PNG")
    step_down(page)
    expect(pane(page).locator("h2")).to_contain_text("MatMul")
    assert np.array_equal(np.load(taken("link", "fc.weight as .npy")), np.eye(4, dtype=np.float32))
    pane(page).get_by_role("button", name="hidden", exact=True).click()
    rows = taken("button", "hidden as .csv").read_text().splitlines()
    assert all(len(row.split(",")) == 4 for row in rows)


def box_color(scheme):
    return "#1c3054" if scheme == "dark" else "#dbe8fd"


def contrast(one, two):
    def luminance(color):
        parts = [int(color[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return float(np.dot((0.2126, 0.7152, 0.0722), linear))

    darker, lighter = sorted((luminance(one), luminance(two)))
    return (lighter + 0.05) / (darker + 0.05)


def test_a_link_opens_the_same_view_and_a_report_is_offered(opened, address, step_down):
    page = opened(address)
    open_model(page, "a.onnx")
    page.get_by_role("button", name="Export", exact=True).last.click()
    expect(page.get_by_text("Passed ✓")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("link", name="Markdown").click()
    assert "Passed ✓" in download.value.path().read_text()
    tab(page, "Look")
    drawn(page, 6)
    step_down(page)
    expect(pane(page).locator("h2")).to_contain_text("MatMul")
    page.get_by_role("button", name="Zoom in").click()
    page.get_by_role("button", name="Copy link").click()
    link = page.url
    other = page.context.new_page()
    other.goto(link)
    drawn(other, 6)
    expect(pane(other).locator("h2")).to_contain_text("MatMul")
    other.get_by_role("button", name="Copy link").click()
    expect(other).to_have_url(link)


def test_structure_is_compared_before_numbers_and_drawings_move_together(opened, address):
    page = opened(address)
    open_model(page, "a.onnx")
    tab(page, "Compare")
    page.get_by_label("A model").select_option("b.onnx")
    expect(page.locator(".sides .drawing[data-drawn]")).to_have_count(2)
    legend = page.locator(".legend").inner_text()
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (.+)", legend)}
    assert counts == {
        "equal": 1,
        "with changed attributes": 1,
        "with changed weights": 1,
        "changed otherwise": 1,
        "added": 0,
        "removed": 0,
    }
    headings = page.locator(".result h3").all_inner_texts()
    assert [each.capitalize() for each in headings[:2]] == ["Structure", "Numbers"]
    expect(page.locator(".verdict")).to_contain_text("on one random input")
    both = page.evaluate_handle("() => [...document.querySelectorAll('canvas')]")
    same = """canvases => {
        const [a, b] = canvases.map((c) => c.toDataURL());
        return a.length > 5000 && Math.abs(a.length - b.length) < 0.3 * a.length;
    }"""
    page.wait_for_function(same, arg=both)
    page.locator("canvas").first.hover()
    before = page.evaluate("c => c[1].toDataURL()", both)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -120)
    page.keyboard.up("Control")
    # it follows the first drawing
    page.wait_for_function("([c, before]) => c[1].toDataURL() !== before", arg=[both, before])
    page.wait_for_function(same, arg=both)


def test_a_choice_by_keys_passes_others_on_its_way(opened, address):
    page = opened(address)
    open_model(page, "a.onnx")
    tab(page, "Compare")
    other = page.get_by_label("A model")
    names = other.locator("option").all_inner_texts()  # after models that other tests have opened
    chosen, broken = names.index("b.onnx"), names.index("cycle.onnx")
    last = max(chosen, broken)
    for key in ["ArrowDown"] * last + ["ArrowUp"] * (last - chosen):
        other.press(key)
    expect(page.locator(".verdict")).to_be_visible()
    expect(page.locator("figcaption").last).to_have_text("b.onnx")
    assert page.url.endswith("/b.onnx")
    for _ in range(abs(broken - chosen)):
        other.press("ArrowDown" if broken > chosen else "ArrowUp")
    expect(page.locator(".result .problem")).to_be_visible()  # the file has a cycle
    expect(page.locator(".verdict")).to_have_count(0)


def test_focus_goes_where_the_eye_goes(opened, address):
    page = opened(address)
    open_model(page, "a.onnx")
    page.get_by_label("Dim 1 of x").press("Enter")
    expect(page.get_by_role("region", name="Result")).to_be_focused()
    expect(page.get_by_text("Passed ✓")).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Download")).to_be_focused()
    tab(page, "Look")
    pane(page).get_by_role("button", name="MatMul", exact=True).click()
    page.keyboard.press("Enter")  # the first result
    canvas = page.locator("canvas")
    expect(canvas).to_be_focused()
    expect(pane(page).locator("h2")).to_contain_text("MatMul")
    page.keyboard.press("Tab")
    expect(pane(page)).to_be_focused()
    page.get_by_role("button", name="Path to the output").press("Enter")
    expect(pane(page).locator("div:has(> .steps)")).to_be_focused()
    pane(page).get_by_role("button", name="act", exact=True).first.press("Enter")
    expect(canvas).to_be_focused()
    expect(pane(page).locator("h2")).to_contain_text("Relu")


def test_the_address_keeps_a_comparison(opened, servers, folder):
    page = opened(servers(folder))
    open_model(page, "a.onnx")
    tab(page, "Compare")
    empty = page.url
    page.get_by_label("A model").select_option("b.onnx")
    expect(page.locator(".verdict")).to_be_visible()
    link = page.url
    assert re.search(r"#\w+/compare/\w+/a\.onnx/b\.onnx$", link)
    page.reload()
    expect(page.locator(".verdict")).to_be_visible()
    expect(page.get_by_label("A model").locator("option:checked")).to_have_text("b.onnx")
    other = page.context.new_page()  # it does not know jobs of the first page
    other.goto(link)
    expect(other.locator(".verdict")).to_be_visible()
    other.goto(re.sub(r"compare/\w+", "compare/0", link))  # as after a restart of the server
    expect(other.locator(".verdict")).to_be_visible()
    tab(page, "Look")
    page.go_back()
    expect(page.locator(".verdict")).to_be_visible()
    page.go_back()
    expect(page.get_by_text("Nodes that are equal, changed")).to_be_visible()
    assert page.url == empty


def test_the_page_comes_back_with_its_model_after_a_restart(opened, folder, step_down):
    command = [sys.executable, "-m", "tenonnx", "serve", "--no-browser", str(folder), "--token", "secret"]

    def start(port):
        made = subprocess.Popen([*command, "--port", str(port)], stdout=subprocess.PIPE, text=True, env={**os.environ})
        return made, made.stdout.readline().strip()

    server, address = start(0)
    port = int(re.search(r":(\d+)", address)[1])
    try:
        page = opened(address)
        open_model(page, "a.onnx")
        tab(page, "Look")
        drawn(page, 6)
        step_down(page)
        expect(pane(page).locator("h2")).to_contain_text("MatMul")
        end(server)
        expect(page.locator("#connection")).to_contain_text("does not answer")
        check(page, "a server that is gone")
        server, _ = start(port)
        expect(page.locator("#connection")).to_be_hidden()
        drawn(page, 6)
        expect(pane(page).locator("h2")).to_contain_text("MatMul")
        tab(page, "Export")
        # just as the page starts to follow the job
        page.route("**/news", lambda route: (end(server), route.continue_()))
        page.get_by_role("button", name="Export", exact=True).last.click()
        expect(page.locator(".spinner")).to_have_count(0)
        expect(page.locator(".result .problem")).to_contain_text("does not answer")
    finally:
        end(server)


def end(server):
    with server:
        server.kill()


def test_a_drawing_is_told_once_it_is_there(opened, address, step_down):
    page = opened(address)
    open_model(page, "a.onnx")
    held = []
    page.route("**/draw", lambda route: held.append(route))
    with page.expect_request("**/draw"):
        tab(page, "Look")
    expect(page.locator(".drawing .busy")).to_be_visible()
    page.set_viewport_size({"width": 900, "height": 700})  # the canvas is redrawn, without boxes
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    expect(page.locator(".drawing[data-drawn]")).to_have_count(0)
    held[0].continue_()
    step_down(page)
    expect(pane(page).locator("h2")).to_contain_text("MatMul")


def test_a_request_that_fails_once_is_sent_again_and_changes_nothing(opened, address, step_down):
    page = opened(address)
    open_model(page, "a.onnx")
    tab(page, "Look")
    step_down(page)
    expect(pane(page).locator("h2")).to_contain_text("MatMul")
    page.evaluate("() => document.querySelector('canvas').id = 'first'")
    connection = page.locator("#connection")
    page.route("**/node", lost_connection, times=1)
    step_down(page, 1)
    expect(pane(page).locator("h2")).to_contain_text("Relu")
    expect(connection).to_be_hidden()
    page.route("**/alive", lost_connection)
    expect(connection).to_contain_text("does not answer")
    page.unroute("**/alive")
    expect(connection).to_be_hidden()
    expect(page.locator("canvas#first")).to_be_focused()
    page.route("**/api/**", lost_connection)
    page.keyboard.press("ArrowDown")
    expect(connection).to_contain_text("does not answer")
    page.unroute("**/api/**")
    expect(connection).to_be_hidden()
    expect(pane(page).locator("h2")).to_contain_text("ExpNeg")
    expect(page.locator("canvas")).to_be_focused()


def lost_connection(route):
    route.abort("connectionreset")


def test_an_upload_is_cancelled(opened, servers, tmp_path):
    page = opened(servers(None))
    with (tmp_path / "large.onnx").open("wb") as file:
        file.truncate(200 << 20)
    page.context.new_cdp_session(page).send(
        "Network.emulateNetworkConditions",
        {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": 200_000},
    )
    page.get_by_label("Choose a model").set_input_files(tmp_path / "large.onnx")
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("Sending large.onnx was cancelled.")).to_be_visible()
    expect(page.get_by_label("Choose a model")).to_be_visible()
