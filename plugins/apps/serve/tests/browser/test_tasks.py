"""Tasks of a newcomer in a browser, by mouse and by keyboard."""

import re
import shutil
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from playwright.sync_api import expect

#: for machines with other load
expect.set_options(timeout=60_000)

EXAMPLES = Path(__file__).parents[5] / "examples"

#: Presses of Tab from one control to any other on the page.
PRESSES = 70


class Mouse:
    """Uses controls by clicks."""

    def __init__(self, page):
        self.page = page

    def press(self, control):
        control.click()

    def choose(self, control, text):
        control.select_option(label=text)  # the menu is drawn by the system, outside of the page

    def take_first_result(self):
        self.page.locator("#search-found li").first.click()


class Keyboard:
    """Reaches controls by Tab, and uses them by keys."""

    def __init__(self, page):
        self.page = page

    def reach(self, control):
        control.wait_for()
        for _ in range(PRESSES):
            if control.evaluate("control => control === document.activeElement"):
                return
            self.page.keyboard.press("Tab")
        raise AssertionError(f"{control} is not reached by {PRESSES} presses of Tab")

    def press(self, control):
        self.reach(control)
        self.page.keyboard.press("Space" if control.get_attribute("type") in ("checkbox", "radio") else "Enter")

    def choose(self, control, text):
        self.reach(control)
        self.page.keyboard.type(text)
        self.page.keyboard.press("Tab")

    def take_first_result(self):
        self.page.keyboard.press("Enter")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of models: some examples, two checkpoints of one training, and a file with a fault."""
    result = tmp_path_factory.mktemp("models")
    for name in (
        "digits/digits.onnx",
        "decoder/decoder.onnx",
        "exports/resnet-dynamo.onnx",
        "exports/gpt2-dynamo.onnx",
    ):
        shutil.copy(EXAMPLES / name, result)
    model = onnx.load(result / "digits.onnx")
    weight = next(each for each in model.graph.initializer if each.data_type == TensorProto.FLOAT)
    weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) * np.float32(1.01), weight.name))
    onnx.save(model, result / "digits-later.onnx")
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4]) for name in ("x", "y")]
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="first"),
        helper.make_node("Add", ["a", "b"], ["y"], name="sum"),
    ]
    onnx.save(helper.make_model(helper.make_graph(nodes, "broken", ends[:1], ends[1:])), result / "broken.onnx")
    return result


@pytest.fixture(scope="module")
def address(servers, folder):
    return servers(folder)


@pytest.fixture(params=[Mouse, Keyboard], ids=["mouse", "keyboard"])
def person(request, opened, address):
    return request.param(opened(address))


def button(place, name):
    return place.get_by_role("button", name=name, exact=True)


def open_model(person, name):
    person.press(button(person.page, name).last)
    expect(person.page.locator("#tabs")).to_be_visible()


def tab(person, name):
    person.press(button(person.page.get_by_role("navigation"), name))


def find(person, text):
    """Choose the first result of a search."""
    person.press(person.page.locator("#find"))
    person.page.keyboard.type(text)
    person.take_first_result()


def take(person, control):
    """The path of what the control downloads."""
    with person.page.expect_download() as download:
        person.press(control)
    return download.value.path()


def export(person):
    person.press(button(person.page.locator("form"), "Export"))


def test_look_up_the_weights_of_a_node(person, folder):
    open_model(person, "digits.onnx")
    tab(person, "Look")
    find(person, "op:MatMul")
    pane = person.page.locator(".pane")
    expect(pane.locator("h2")).to_contain_text("MatMul")
    person.press(button(pane, "Histogram").first)
    expect(pane.locator(".histogram")).to_be_visible()
    name = re.fullmatch(
        "(.+) as [.]npy", pane.get_by_role("link", name=re.compile("as [.]npy")).first.get_attribute("aria-label")
    )[1]
    result = np.load(take(person, pane.get_by_role("link", name=f"{name} as .npy", exact=True)))
    weights = {each.name: numpy_helper.to_array(each) for each in onnx.load(folder / "digits.onnx").graph.initializer}
    assert np.array_equal(result, weights[name])


def test_learn_why_a_model_cannot_go_to_an_opset(person):
    open_model(person, "decoder.onnx")
    person.choose(person.page.get_by_label("Opset", exact=True), "7")
    export(person)
    expect(person.page.get_by_text("Not possible ✗")).to_be_visible()
    person.press(person.page.locator(".blockers button.link").first)
    expect(person.page.locator(".pane h2")).to_contain_text("version")


def test_write_another_opset_and_take_the_file(person, folder):
    open_model(person, "resnet-dynamo.onnx")
    person.choose(person.page.get_by_label("Opset", exact=True), "13")
    export(person)
    expect(person.page.get_by_text("Passed ✓")).to_be_visible()
    written = take(person, person.page.get_by_role("link", name="Download"))
    assert onnx.load(written).opset_import[0].version == 13
    image = np.random.default_rng(0).standard_normal((5, 3, 32, 32), np.float32)
    (given,) = onnxruntime.InferenceSession(folder / "resnet-dynamo.onnx").run(None, {"image": image})
    (result,) = onnxruntime.InferenceSession(written).run(None, {"image": image})
    np.testing.assert_allclose(result, given, rtol=1e-3, atol=1e-4)


def test_compare_two_checkpoints(person):
    open_model(person, "digits.onnx")
    tab(person, "Compare")
    person.choose(person.page.get_by_label("A model"), "digits-later.onnx")
    expect(person.page.locator(".legend")).to_contain_text("1 with changed weights")
    expect(person.page.locator(".verdict")).to_be_visible()


def test_quantize_and_read_the_verdict(person):
    open_model(person, "resnet-dynamo.onnx")
    person.press(person.page.get_by_text("More", exact=True))
    person.press(person.page.get_by_label("Quantize", exact=True))
    export(person)
    expect(person.page.get_by_text("Passed ✓")).to_be_visible()
    expect(person.page.locator(".result")).to_contain_text("10 nodes quantized; lowest SQNR")


def test_find_what_costs_most(person):
    open_model(person, "resnet-dynamo.onnx")
    tab(person, "Look")
    person.choose(person.page.get_by_label("Color by"), "multiplications")
    expect(person.page.locator(".costs")).to_contain_text("in total")


def test_run_with_values_of_ones_own(person):
    open_model(person, "digits.onnx")
    tab(person, "Run")
    with person.page.expect_file_chooser() as chooser:
        person.press(person.page.get_by_label("Values of inputs"))
    chooser.value.set_files(EXAMPLES / "digits" / "samples.npz")
    expect(person.page.get_by_text("samples.npz")).to_be_visible()
    person.press(button(person.page.locator("main"), "Run"))
    expect(person.page.get_by_role("region", name="Outputs")).to_contain_text("probabilities")


def test_take_a_picture_of_the_model(person):
    open_model(person, "gpt2-dynamo.onnx")
    tab(person, "Look")
    person.page.locator(".drawing[data-drawn]").wait_for()
    assert take(person, button(person.page, "SVG")).read_text().startswith("<svg")


def test_find_the_fault_of_a_broken_model(person):
    open_model(person, "broken.onnx")
    expect(person.page.locator(".pane")).to_contain_text("2 faults")
    person.press(button(person.page.locator(".pane"), "sum"))
    expect(person.page.locator(".pane h2").first).to_contain_text("Add")


def test_follow_an_edge_and_come_back(person):
    open_model(person, "gpt2-dynamo.onnx")
    tab(person, "Look")
    find(person, "op:Softmax")
    expect(person.page.locator(".pane h2")).to_contain_text("Softmax")
    person.press(button(person.page.locator(".pane"), "IsNaN_70"))
    expect(person.page.locator(".pane h2")).to_contain_text("IsNaN")
    person.page.go_back()
    expect(person.page.locator(".pane h2")).to_contain_text("Softmax")
