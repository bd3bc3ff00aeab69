// The page Run: inputs made up, from a file, or an image; what comes out, and what every value holds.

import { $, fill, h, number, problem, table, take_focus, unique } from "./dom.js";
import { file_field } from "./export.js";
import { pixels, npz } from "./arrays.js";
import { keep } from "./keep.js";
import { resume, start } from "./jobs.js";

export function show_run(page) {
  const place = h("section", { className: "card result", "aria-label": "Result" });
  const feeds = file_field("Values of inputs, as .npz or .csv", ".npz,.csv", page, "run");
  const images = page.about.inputs.filter((input) => input.image).map((input) => image_field(input, page, feeds));
  const backend = h("select", { id: "backend", name: "backend" }, page.form.backends.map((each) => h("option", { value: each }, each)));
  const seed = h("input", { id: "seed", name: "seed", type: "text", inputMode: "numeric", pattern: "[0-9]{1,9}", title: "A whole number of at most nine digits", required: true, value: "0", size: 6 });
  const submit = (event) => {
    event.preventDefault();
    if (feeds.problem()) { fill(place, problem(feeds.problem())); return; }
    const options = { backend: backend.value, seed: Number(seed.value) };
    page.ran = { options, feeds: feeds.id() };
    start({ task: "run", model: page.model.id, options, feeds: feeds.id() }, place, shown);
    take_focus(place);
  };
  const shown = (job) => {
    page.statistics = job.result.values;
    fill(place, result(job, page));
  };
  fill(place, h("p", { className: "empty" }, "Inputs that are not given get random values."));
  const form = h("form", { className: "card", onsubmit: submit, "aria-label": "Run" }, h("h2", {}, "Run"),
      feeds.shown, images,
      h("div", { className: "row" },
        h("div", { className: "field" }, h("label", { htmlFor: "backend" }, "Backend"), backend),
        h("div", { className: "field" }, h("label", { htmlFor: "seed" }, "Seed"), seed)),
      h("button", { type: "submit", className: "main" }, "Run"));
  fill($("view"), h("div", { className: "columns" }, form, place));
  keep(form, `run-${page.model.id}`);
  resume({ task: "run", model: page.model.id }, place, shown);
}

// An image becomes the contents of an input: its size, values from 0 to 1, one archive for all inputs.
const taken = new Map();

export function image_field(input, page, feeds) {
  const id = unique("image");
  const said = h("p", { className: "help", role: "status" }, "Values from 0 to 1, scaled to the size of the input");
  const take = async (file) => {
    try {
      taken.set(input.name, await pixels(file, input));
      feeds.set(await page.send_feeds(new File([npz(taken)], `images-${Date.now()}.npz`)));
      said.textContent = `${file.name}, ${taken.get(input.name).shape.join("×")}`;
    } catch (error) { said.textContent = error.what || "This file is no image that the browser can read."; }
  };
  const control = h("input", { id, type: "file", accept: "image/*", onchange: () => control.files[0] && take(control.files[0]) });
  return h("div", {
    className: "field drop",
    ondragover: (event) => event.preventDefault(),
    ondrop: (event) => { event.preventDefault(); event.stopPropagation(); if (event.dataTransfer.files[0]) take(event.dataTransfer.files[0]); },
  }, h("label", { htmlFor: id }, `An image for ${input.name}`), control, said);
}

function result(job, page) {
  const found = job.result;
  const told = (each) => [number(each.min), number(each.max), number(each.mean), number(each.deviation), each.not_finite ? String(each.not_finite) : ""];
  const columns = ["Type", "Smallest", "Largest", "Mean", "Std", "Not finite"];
  const outputs = Object.entries(found.outputs).map(([name, each]) => [name, each.type, ...told(each).slice(0, 4), told(each)[4], h("code", {}, each.first)]);
  const inputs = Object.entries(found.inputs).map(([name, each]) => [name + (each.given ? "" : " (random)"), each.type, ...told(each)]);
  const values = Object.entries(found.values).flatMap(([key, each]) => Object.entries(each).map(([name, stated]) =>
    [h("button", { type: "button", className: "link", onclick: () => page.reveal(key) }, name), stated.type, ...told(stated)]));
  const longest = 500;
  const total = found.times.reduce((sum, each) => sum + each.seconds, 0) || 1;
  const times = found.times.slice(0, longest).map((each) => [
    each.key ? h("button", { type: "button", className: "link", onclick: () => page.reveal(each.key) }, each.name) : each.name,
    each.op, number(each.seconds * 1e3), `${(each.seconds / total * 100).toFixed(1)} %`]);
  return [
    h("p", { className: "largest" }, `Computed by ${found.backend}`),
    h("h3", {}, "Outputs"), table(["Name", ...columns, "Values"], outputs, "Outputs"),
    job.file && h("p", {}, h("a", { className: "button", href: `/api/jobs/${job.id}/file`, download: job.file }, "Download outputs")),
    h("h3", {}, "Inputs"), table(["Name", ...columns], inputs, "Inputs"),
    times.length > 0 && h("details", {}, h("summary", {}, "Time of each node"),
      table(["Node", "Op", "Milliseconds", "Share"], times, "Time of each node")),
    h("details", {}, h("summary", {}, "Every value"), table(["Name", ...columns], values.slice(0, longest), "Every value"),
      values.length > longest && h("p", { className: "help" }, `${longest} of ${values.length} are listed. Choose a node under Look to see its values.`)),
  ];
}
