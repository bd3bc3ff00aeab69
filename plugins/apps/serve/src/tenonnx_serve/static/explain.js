// The page Explain: how much each pixel, feature or token adds to an output.

import { attributions, read_vocabulary } from "./attributions.js";
import { $, fill, h, number, problem, table, take_focus, unique } from "./dom.js";
import { file_field } from "./export.js";
import { keep } from "./keep.js";
import { resume, start } from "./jobs.js";
import { image_field } from "./run.js";

export function show_explain(page) {
  const place = h("section", { className: "card result", "aria-label": "Result" });
  const feeds = file_field("Values of inputs, as .npz or .csv", ".npz,.csv", page, "explain");
  const images = page.about.inputs.filter((input) => input.image).map((input) => image_field(input, page, feeds));
  const method = h("select", { id: "method", name: "method", title: "automatic: tree-shap for trees, else integrated-gradients" },
    h("option", { value: "" }, "automatic"),
    page.form.explain.map((each) => h("option", { value: each }, each)));
  const texts = {
    of: text_field("of", "Output", "the first of floats"),
    target: text_field("target", "Class", "largest output", "[0-9]{0,9}"),
    at: text_field("at", "Feature map, for grad-cam", "the name of a value"),
    wrt: text_field("wrt", "Explained value", "the float input, or the embedding"),
    seed: text_field("seed", "Seed", "0", "[0-9]{0,9}"),
  };
  const words = vocabulary_field(() => { if (last) show(last); });
  let last = null;
  const show = (job) => { fill(place, result(last = job, words.value())); };
  const submit = (event) => {
    event.preventDefault();
    if (feeds.problem()) { fill(place, problem(feeds.problem())); return; }
    const options = { method: method.value };
    for (const [name, field] of Object.entries(texts)) options[name] = field.control.value.trim();
    start({ task: "explain", model: page.model.id, options, feeds: feeds.id() }, place, show);
    take_focus(place);
  };
  fill(place, h("p", { className: "empty" }, "Attributions tell how much each pixel, feature or token adds to an output. Inputs that are not given get random values."));
  const { of, target, at, wrt, seed } = texts;
  const form = h("form", { className: "card", onsubmit: submit, "aria-label": "Explain" }, h("h2", {}, "Explain"),
    feeds.shown, images,
    h("div", { className: "field" }, h("label", { htmlFor: "method" }, "Method"), method),
    h("div", { className: "row" }, target.shown, seed.shown),
    h("details", { className: "more" }, h("summary", {}, "More"), of.shown, wrt.shown, at.shown, words.shown),
    h("button", { type: "submit", className: "main" }, "Explain"));
  fill($("view"), h("div", { className: "columns" }, form, place));
  keep(form, `explain-${page.model.id}`);
  resume({ task: "explain", model: page.model.id }, place, show);
}

function text_field(name, label, placeholder, pattern) {
  const id = unique(name);
  const control = h("input", { id, name, type: "text", placeholder, pattern, autocomplete: "off", spellcheck: false, title: pattern && "A whole number of at most nine digits" });
  return { control, shown: h("div", { className: "field" }, h("label", { htmlFor: id }, label), control) };
}

function vocabulary_field(changed) {
  const id = unique("vocabulary");
  const said = h("p", { className: "help", role: "status" }, "vocab.txt, vocab.json or tokenizer.json: the texts of token numbers");
  let known = null;
  const control = h("input", { id, type: "file", accept: ".txt,.json", onchange: async () => {
    const [file] = control.files;
    try {
      known = file ? await read_vocabulary(file) : null;
      said.textContent = known ? `${file.name}, ${known.size.toLocaleString("en")} tokens` : "";
      changed();
    } catch (error) { said.textContent = error.what || String(error); }
  } });
  return { value: () => known, shown: h("div", { className: "field" }, h("label", { htmlFor: id }, "Vocabulary"), control, said) };
}

function result(job, vocabulary) {
  const found = job.result;
  const rows = Object.entries(found.outputs).filter(([, each]) => each.length).map(([name, each]) => [name, each[0].map(number).join(", ")]);
  const random = Object.entries(found.inputs).filter(([, each]) => !each.given).map(([name]) => name);
  return [
    h("p", { className: "largest" }, `Computed by ${found.backend}`),
    random.length > 0 && h("p", { className: "note" }, `Random inputs: ${random.join(", ")}`),
    attributions(found.attributions, vocabulary),
    found.delta !== null && h("p", { className: "help" }, `Attributions miss the difference of outputs by at most ${number(found.delta)}.`),
    rows.length > 0 && [h("h3", {}, "Outputs of the first row"), table(["Name", "Values"], rows, "Outputs of the first row")],
    h("p", {}, h("a", { className: "button", href: `/api/jobs/${job.id}/file`, download: job.file }, "Download attributions")),
  ];
}
