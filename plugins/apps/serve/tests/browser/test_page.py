"""The page from a user's view, in a browser."""

import re
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from axe_playwright_python.sync_playwright import Axe
from onnx import TensorProto, helper
from playwright.sync_api import expect

import tenonnx as tx

#: for machines with other load
expect.set_options(timeout=60_000)

EXAMPLES = Path(__file__).parents[5] / "examples"


def send(page, path):
    page.get_by_label("Choose a model").set_input_files(path)
    expect(page.get_by_role("heading", name="Export", exact=True)).to_be_visible()


def open_example(page, way):
    page.get_by_role("button", name=way, exact=True).last.click()
    expect(page.get_by_role("heading", name="Export", exact=True)).to_be_visible()


def export(page):
    page.get_by_role("button", name="Export", exact=True).last.click()


def tab(page, name):
    page.get_by_role("navigation").get_by_role("button", name=name, exact=True).click()


def model_of(nodes, opset=17, shape=("n", 8)):
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape)) for name in ("x", nodes[-1].output[0])]
    graph = helper.make_graph(nodes, "made", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def test_from_a_file_to_a_file_that_runs_with_the_numbers_shown(opened, address, tmp_path):
    page = opened(address)
    send(page, EXAMPLES / "exports" / "resnet-dynamo.onnx")
    assert page.get_by_label("Height").input_value() == "32"
    assert page.get_by_label("Width").input_value() == "32"
    assert page.get_by_label("Opset", exact=True).input_value() == "17"
    assert page.get_by_label("Dynamic batch").is_checked()
    assert page.get_by_label("Simplify").is_checked()
    page.get_by_label("Opset", exact=True).select_option("13")
    export(page)
    expect(page.get_by_text("Passed ✓")).to_be_visible()
    shown = float(re.search(r"Largest difference (\S+)", page.locator(".largest").inner_text())[1])
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    download.value.save_as(tmp_path / "new.onnx")
    assert onnx.load(tmp_path / "new.onnx").opset_import[0].version == 13
    image = np.random.default_rng(0).standard_normal((5, 3, 32, 32), np.float32)
    old, new = (
        onnxruntime.InferenceSession(path).run(None, {"image": image})[0]
        for path in (EXAMPLES / "exports" / "resnet-dynamo.onnx", tmp_path / "new.onnx")
    )
    assert np.abs(old - new).max() <= max(10 * shown, 1e-4)


def test_an_export_in_another_format(opened, address, tmp_path):
    page = opened(address)
    open_example(page, "digits/digits.onnx")
    page.get_by_label("Format", exact=True).select_option(".safetensors")
    export(page)
    expect(page.get_by_text("Passed ✓")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    assert download.value.suggested_filename == "digits.safetensors"
    download.value.save_as(tmp_path / "new.safetensors")
    assert tx.compare(EXAMPLES / "digits" / "digits.onnx", tmp_path / "new.safetensors").equal
    page.get_by_label("Format", exact=True).select_option(".onnx")
    expect(page.get_by_text("The options have changed since this result.")).to_be_visible()


def test_a_refusal_leads_to_the_nodes_in_the_drawing(opened, address):
    page = opened(address)
    open_example(page, "decoder/decoder.onnx")
    page.get_by_label("Opset", exact=True).select_option("7")
    export(page)
    expect(page.get_by_text("Not possible ✗")).to_be_visible()
    page.locator(".blockers button.link").first.click()
    expect(page.locator(".pane h2")).to_contain_text("version")


def test_a_model_that_differs_fails_and_offers_no_file(opened, address):
    page = opened(address)
    open_example(page, "bert/bert.onnx")
    page.get_by_text("More", exact=True).click()
    page.get_by_label("Exact", exact=True).check()
    page.get_by_label("Domains", exact=True).fill("ai.onnx")
    page.get_by_label("Opset", exact=True).select_option("13")
    export(page)
    expect(page.get_by_text("Failed ✗")).to_be_visible()
    expect(page.get_by_role("link", name="Download")).to_have_count(0)
    expect(page.locator(".result table").first).to_contain_text("✗")


def test_a_job_is_cancelled_and_found_again_by_a_page_that_is_loaded_anew(opened, servers, tmp_path):
    count = tmp_path / "count"
    (tmp_path / "slow.py").write_text(
        "import pathlib, time, tenonnx as tx\n"
        f"count = pathlib.Path({str(count)!r})\n"
        "def make():\n"
        "    if count.exists(): time.sleep(600)\n"
        "    count.touch()\n"
        f"    return tx.load({str(EXAMPLES / 'digits' / 'digits.onnx')!r})\n"
    )
    page = opened(servers(f"{tmp_path}/slow.py:make"))
    expect(page.get_by_role("heading", name="Export", exact=True)).to_be_visible()
    export(page)
    expect(page.get_by_role("button", name="Cancel")).to_be_visible()
    page.reload()
    expect(page.get_by_role("button", name="Cancel")).to_be_visible()
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("Cancelled. Nothing was written.")).to_be_visible()


@pytest.fixture(scope="session")
def large(tmp_path_factory):
    """A model of 10,000 nodes without paths in their names."""
    nodes, last = [], "x"
    for k in range(2500):
        nodes += [
            helper.make_node("Relu", [last], [f"a{k}"], name=f"relu_{k}"),
            helper.make_node("Tanh", [last], [f"b{k}"], name=f"tanh_{k}"),
            helper.make_node("Add", [f"a{k}", last], [f"c{k}"], name=f"add_{k}"),
            helper.make_node("Mul", [f"b{k}", f"c{k}"], [f"d{k}"], name=f"mul_{k}"),
        ]
        last = f"d{k}"
    path = tmp_path_factory.mktemp("large") / "large.onnx"
    onnx.save(model_of(nodes), path)
    return path


def test_ten_thousand_nodes_are_drawn_searched_and_zoomed(opened, address, large):
    page = opened(address)
    send(page, large)
    start = time.monotonic()
    tab(page, "Look")
    page.wait_for_selector('.drawing[data-drawn="10002"]')
    sys.stdout.write(f"\nfirst drawing of 10,000 nodes after {time.monotonic() - start:.2f} s\n")
    page.keyboard.press("Control+k")
    page.get_by_role("combobox", name="Op, name, value, weight or attribute").fill("mul_2345")
    expect(page.locator("#search-found li")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page.locator(".pane")).to_contain_text("mul_2345")
    frames = page.evaluate(
        """async () => {
            const canvas = document.querySelector("canvas"), spent = [];
            for (let k = 0; k < 60; k++) {
                const turned = { deltaY: k < 30 ? 60 : -60, ctrlKey: k % 2 === 0, cancelable: true };
                canvas.dispatchEvent(new WheelEvent("wheel", turned));
                const start = performance.now();
                await new Promise(requestAnimationFrame);
                await new Promise(requestAnimationFrame);
                spent.push(performance.now() - start);
            }
            return spent.sort((a, b) => a - b);
        }"""
    )
    sys.stdout.write(f"two frames take {frames[30]:.0f} ms, at most {frames[-1]:.0f} ms\n")
    for _ in range(20):
        page.get_by_role("button", name="Zoom out").click()
    page.get_by_role("button", name="Show all").click()
    expect(page.locator(".drawing")).to_have_attribute("data-drawn", "10002")


def test_groups_and_definitions_open_in_the_drawing(opened, address, tmp_path, step_down):
    nodes = [
        helper.make_node("Softmax", [f"v{k}" if k else "x"], [f"v{k + 1}"], name=f"/layer.{k // 200}/soft.{k}")
        for k in range(600)
    ]
    onnx.save(model_of(nodes), tmp_path / "groups.onnx")
    page = opened(address)
    send(page, tmp_path / "groups.onnx")
    tab(page, "Look")
    page.wait_for_selector('.drawing[data-drawn="5"]')
    step_down(page)
    expect(page.locator(".pane h2")).to_have_text("layer.0")
    page.keyboard.press("Enter")
    page.wait_for_selector('.drawing[data-drawn="205"]')
    page.keyboard.press("ArrowDown")
    expect(page.locator(".pane h2")).to_contain_text("Softmax")
    page.keyboard.press("Enter")
    expect(page.locator(".pane").get_by_role("button", name="Close")).to_be_visible()
    page.get_by_label("Color by").select_option("multiplications")


def test_two_models_side_by_side(opened, address):
    page = opened(address)
    open_example(page, "quantized/resnet.onnx")
    tab(page, "Compare")
    page.get_by_label("A model").select_option("quantized/resnet-qdq.onnx")
    expect(page.locator(".verdict")).to_be_visible()
    expect(page.locator(".legend")).to_contain_text("added")
    expect(page.locator(".sides .drawing[data-drawn]")).to_have_count(2)


def test_a_run_shows_what_values_hold(opened, address):
    page = opened(address)
    open_example(page, "digits/digits.onnx")
    tab(page, "Run")
    page.get_by_label("Values of inputs").set_input_files(EXAMPLES / "digits" / "samples.npz")
    expect(page.get_by_text("samples.npz")).to_be_visible()
    page.get_by_role("button", name="Run", exact=True).last.click()
    expect(page.get_by_role("region", name="Outputs")).to_contain_text("probabilities")
    page.locator("summary", has_text="Time of each node").click()
    expect(page.get_by_role("region", name="Time of each node")).to_contain_text("MatMul")
    page.locator("summary", has_text="Every value").click()
    page.get_by_role("region", name="Every value").get_by_role("button").first.click()
    expect(page.locator(".pane")).to_contain_text("In the last run")


def test_an_image_becomes_the_values_of_an_input(opened, address, tmp_path):
    page = opened(address)
    open_example(page, "exports/resnet-dynamo.onnx")
    tab(page, "Run")
    picture = page.locator("header").screenshot()
    (tmp_path / "picture.png").write_bytes(picture)
    page.get_by_label("An image for image").set_input_files(tmp_path / "picture.png")
    expect(page.get_by_text("picture.png, 1×3×32×32")).to_be_visible()
    page.get_by_role("button", name="Run", exact=True).last.click()
    expect(page.get_by_role("region", name="Inputs")).to_be_visible()
    assert "(random)" not in page.get_by_role("region", name="Inputs").inner_text()


def test_names_of_a_model_stay_texts(opened, address, tmp_path):
    name = "<img src=x onerror=document.title='taken'>"
    onnx.save(model_of([helper.make_node("Relu", ["x"], [name], name=f"/{name}/{name}")]), tmp_path / "m.onnx")
    page = opened(address)
    send(page, tmp_path / "m.onnx")
    export(page)
    expect(page.locator(".verdict")).to_be_visible()
    tab(page, "Look")
    page.keyboard.press("Control+k")
    page.keyboard.press("Enter")
    expect(page.locator(".pane")).to_contain_text("onerror")
    assert "taken" not in page.title()


def test_the_keyboard_alone_exports_a_model(opened, address):
    page = opened(address)

    def reach(text):
        for _ in range(80):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.textContent").strip() == text:
                return
        raise AssertionError(text)

    expect(page.get_by_role("heading", name="In the folder")).to_be_visible()
    reach("iris/iris.onnx")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Export", exact=True)).to_be_visible()
    page.get_by_label("Opset", exact=True).focus()
    reach("Export")
    page.keyboard.press("Enter")
    expect(page.locator(".verdict")).to_be_visible()
    reach("Download")


def test_the_address_keeps_tab_and_node_and_back_leads_there(opened, address, step_down):
    page = opened(address)
    open_example(page, "iris/iris.onnx")
    tab(page, "Look")
    page.wait_for_selector(".drawing[data-drawn]")
    step_down(page)
    expect(page.locator(".pane h2")).to_contain_text("version")
    chosen = page.locator(".pane h2").inner_text()
    tab(page, "Run")
    tab(page, "Look")
    expect(page.locator(".pane h2")).to_have_text(chosen)
    page.reload()
    expect(page.locator(".pane h2")).to_have_text(chosen)
    page.go_back()
    expect(page.get_by_role("heading", name="Run", exact=True)).to_be_visible()
    page.go_back()
    expect(page.locator(".pane h2")).to_have_text(chosen)
    page.go_back()  # both steps by arrow keys are one entry
    expect(page.locator(".pane h2")).not_to_have_text(chosen)
    page.go_back()
    expect(page.get_by_role("heading", name="Export", exact=True)).to_be_visible()
    page.go_back()
    expect(page.get_by_role("heading", name="In the folder")).to_be_visible()


def test_a_step_after_going_back_is_an_entry_of_its_own(opened, address, step_down):
    page = opened(address)
    open_example(page, "iris/iris.onnx")
    tab(page, "Look")
    step_down(page)
    expect(page.locator(".pane h2")).to_contain_text("version")
    page.go_back()
    expect(page.locator(".pane h2")).not_to_contain_text("version")
    before = page.url
    step_down(page, 1)
    expect(page).not_to_have_url(before)
    page.go_back()
    expect(page).to_have_url(before)


def test_a_model_that_is_read_slowly_does_not_replace_a_later_page(opened, address, large):
    page = opened(address)
    held = []
    page.route("**/open", lambda route: held.append(route))
    page.get_by_role("button", name="iris/iris.onnx", exact=True).last.click()
    page.get_by_text("Reading iris/iris.onnx").wait_for()
    page.locator("#home").click()
    expect(page.get_by_role("heading", name="In the folder")).to_be_visible()
    with page.expect_response("**/open"):
        held[0].continue_()
    # wait until the page has handled earlier answers
    page.evaluate("() => fetch('/api/alive').then((answer) => answer.text())")
    expect(page.get_by_role("heading", name="In the folder")).to_be_visible()
    assert not page.locator("#model").is_visible()


def test_the_form_shows_the_opset_of_a_target_and_keeps_what_was_filled_in(opened, address):
    page = opened(address)
    open_example(page, "digits/digits.onnx")
    page.get_by_label("Target").select_option("coreml-onnx")
    shown = page.get_by_label("Opset", exact=True).input_value()
    export(page)
    expect(page.locator(".verdict")).to_be_visible()
    assert f"ai.onnx {shown}" in page.locator(".result").inner_text()
    tab(page, "Look")
    tab(page, "Export")
    expect(page.get_by_label("Target")).to_have_value("coreml-onnx")
    expect(page.get_by_label("Opset", exact=True)).to_have_value(shown)
    expect(page.locator(".stale")).to_have_count(0)
    page.get_by_label("Simplify").uncheck()
    expect(page.locator(".stale")).to_have_count(1)
    page.get_by_label("Simplify").check()
    expect(page.locator(".stale")).to_have_count(0)


def test_inputs_that_are_refused_stop_an_export(opened, address, tmp_path):
    page = opened(address)
    open_example(page, "digits/digits.onnx")
    page.get_by_text("More", exact=True).click()
    (tmp_path / "inputs.txt").write_text("1")
    page.get_by_label("Inputs for comparing").set_input_files(tmp_path / "inputs.txt")
    expect(page.get_by_text("Files that end in")).to_be_visible()
    export(page)
    expect(page.locator(".result .problem")).to_be_visible()
    page.get_by_role("button", name="Without this file").click()
    export(page)
    expect(page.get_by_text("Passed ✓")).to_be_visible()


def test_values_weights_and_attributes_are_found(opened, address, tmp_path):
    weight = onnx.numpy_helper.from_array(np.ones((8, 8), np.float32), "fc.weight")
    nodes = [
        helper.make_node("MatMul", ["x", "fc.weight"], ["hidden"], name="fc"),
        helper.make_node("Softmax", ["hidden"], ["y"], name="soft", axis=1),
    ]
    model = model_of(nodes)
    model.graph.initializer.append(weight)
    onnx.save(model, tmp_path / "m.onnx")
    page = opened(address)
    send(page, tmp_path / "m.onnx")
    page.keyboard.press("Control+k")
    for text, count in {"fc.weight": 1, "hidden": 1, "op:softmax": 1, "axis>0": 1, "axis>1": 0, "y": 2}.items():
        page.get_by_role("combobox", name="Op, name, value, weight or attribute").fill(text)
        expect(page.locator("#search-found li")).to_have_count(count)


@pytest.mark.parametrize(
    "options",
    [{}, {"color_scheme": "dark"}, {"viewport": {"width": 390, "height": 780}}],
    ids=["light", "dark", "phone"],
)
def test_nothing_keeps_anyone_out(opened, address, options, step_down):
    page = opened(address, **options)

    def check(what):
        result = Axe().run(page)
        reported = [
            (each["id"], [node["html"][:200] for node in each["nodes"]]) for each in result.response["violations"]
        ]
        assert not reported, what
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{what} is wider than the page"

    expect(page.get_by_role("heading", name="In the folder")).to_be_visible()
    check("welcome")
    open_example(page, "exports/resnet-dynamo.onnx")
    page.get_by_text("More", exact=True).click()
    check("form")
    page.get_by_text("More", exact=True).click()
    export(page)
    expect(page.get_by_text("Passed ✓")).to_be_visible()
    check("result")
    tab(page, "Look")
    page.wait_for_selector(".drawing[data-drawn]")
    step_down(page)
    page.get_by_role("button", name="Histogram").first.click()
    expect(page.locator(".histogram")).to_be_visible()
    check("look")
    page.keyboard.press("Control+k")
    check("search")
    page.keyboard.press("Escape")
    tab(page, "Run")
    page.get_by_role("button", name="Run", exact=True).last.click()
    expect(page.get_by_role("region", name="Outputs")).to_be_visible()
    check("run")
    tab(page, "Compare")
    page.get_by_label("A model").select_option(label="quantized/resnet.onnx")
    expect(page.locator(".legend")).to_be_visible()
    expect(page.locator(".sides .drawing[data-drawn]")).to_have_count(2)
    check("compare")
