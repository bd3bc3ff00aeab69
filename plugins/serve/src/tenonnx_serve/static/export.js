// The page Export: options with their defaults, and what became of the model.

import { resume, start } from "./jobs.js";
import { $, fill, h, megabytes, plural, problem, table, unique } from "./dom.js";
import { fields } from "./options.js";
import { differences, largest, remarks, verdict } from "./results.js";

const OPSETS = [13, 14, 15, 16, 17];
const OWN = ["--opset", "--target", "--simplify", "--fix-shapes", "--free-dims"]; // these have fields of their own

export function show_export(page) {
  const { model, about, form } = page;
  const place = h("section", { className: "card result", "aria-label": "Result" });
  const opset = select("Opset", [...OPSETS, ...others()].map((n) => [n, String(n)]), 17);
  const target = select("Target", [["", "any runtime"], ...Object.keys(form.targets).map((name) => [name, name])], "");
  const batch = check("Dynamic batch", true);
  const simplify = has(form.convert, "--simplify") ? check("Simplify", true) : null;
  const dims = dim_fields(about, batch.control);
  const more = fields(form.convert.filter((option) => !OWN.includes(option.flag) && (about.made || !named(option))), {});
  const quantize = form.quantize.length ? quantizing(form.quantize) : null;
  const feeds = file_field("Inputs for comparing and calibrating", ".npz,.csv", page);
  const go = h("button", { type: "submit", className: "main" }, "Export");
  const submit = (event) => {
    event.preventDefault();
    const convert = { ...more.read(), ...dims.read() };
    if (target.control.value) convert["--target"] = target.control.value;
    if (!target.control.value || opset.touched()) convert["--opset"] = [opset.control.value];
    if (simplify && simplify.control.checked) convert["--simplify"] = true;
    const options = { convert };
    if (quantize && quantize.read()) options.quantize = quantize.read();
    go.disabled = true;
    const question = { task: "export", model: model.id, options, feeds: feeds.id() };
    start(question, place, (job) => fill(place, result(job, page, dims))).finally(() => { go.disabled = false; });
    place.scrollIntoView({ block: "nearest", behavior: "smooth" });
  };
  fill(place, h("p", { className: "empty" }, "Export checks the new model: it runs both on the same inputs and compares every output."));
  fill($("view"),
    h("div", { className: "columns" },
      h("form", { className: "card", onsubmit: submit, "aria-label": "Export" },
        h("h2", {}, "Export"),
        h("div", { className: "row" }, opset.shown, target.shown),
        dims.shown,
        h("div", { className: "checks" }, batch.shown, simplify && simplify.shown),
        h("details", { className: "more" }, h("summary", {}, "More"), feeds.shown, quantize && quantize.shown, more.shown),
        go),
      place));
  resume("export", model.id, place, (job) => fill(place, result(job, page, dims)));
}

const has = (options, flag) => options.some((option) => option.flag === flag);
const named = (option) => ["--task", "--input-names", "--output-names"].includes(option.flag);

function others() {
  const found = [];
  for (let n = 7; n <= 28; n++) if (!OPSETS.includes(n)) found.push(n);
  return found;
}

function select(label, choices, value) {
  const id = unique("choice");
  let touched = false;
  const control = h("select", { id, onchange: () => { touched = true; } },
    choices.map(([each, text]) => h("option", { value: each, selected: each === value }, text)));
  return { control, touched: () => touched, shown: h("div", { className: "field" }, h("label", { htmlFor: id }, label), control) };
}

function check(label, on) {
  const id = unique("check");
  const control = h("input", { id, type: "checkbox", checked: on });
  return { control, shown: h("div", { className: "field check" }, control, h("label", { htmlFor: id }, label)) };
}

// A field for each dim of each input but the batch: height and width of images first, by these names.
function dim_fields(about, batch) {
  const entries = [];
  const shown = [];
  for (const input of about.inputs) {
    if (!input.shape || !input.shape.length) continue;
    const axes = input.image ? [input.image.height, input.image.width] : input.shape.map((_, axis) => axis).slice(1);
    const cells = axes.map((axis) => {
      const id = unique("dim");
      const dim = input.shape[axis];
      const what = !input.image ? `Dim ${axis}` : axis === input.image.height ? "Height" : "Width";
      const name = about.inputs.length > 1 || !input.image ? `${what} of ${input.name}` : what;
      const control = h("input", { id, type: "text", value: dim ?? "", autocomplete: "off", placeholder: "any", size: 8 });
      entries.push({ input, axis, dim, control });
      return h("div", { className: "field" }, h("label", { htmlFor: id }, name), control);
    });
    if (cells.length) shown.push(h("div", { className: "row dims" }, cells));
  }
  const folded = shown.length > 3;
  const read = () => {
    const fixed = {}, freed = {};
    const set = (input, axis, wanted, dim) => {
      if (wanted === "" || wanted === String(dim)) return;
      if (typeof dim === "number" && !/^\d+$/.test(wanted)) (freed[input.name] ||= {})[axis] = wanted;
      else (fixed[input.name] ||= input.shape.map(() => "?"))[axis] = wanted;
    };
    for (const { input, axis, dim, control } of entries) set(input, axis, control.value.trim(), dim);
    for (const input of about.inputs) {
      const dim = input.shape && input.shape[0];
      if (!input.shape || !input.shape.length) continue;
      if (batch.checked && typeof dim === "number" && same_batch(about, dim)) set(input, 0, "batch", dim);
      if (!batch.checked && typeof dim !== "number") set(input, 0, "1", dim);
    }
    const said = {};
    if (Object.keys(fixed).length) said["--fix-shapes"] = Object.entries(fixed).map(([name, dims]) => `${name}:${dims.join(",")}`);
    if (Object.keys(freed).length) said["--free-dims"] = Object.entries(freed).map(([name, axes]) =>
      `${name}:${Object.entries(axes).map(([axis, symbol]) => `${axis}=${symbol}`).join(",")}`);
    return said;
  };
  return { read, batch, shown: folded ? h("details", {}, h("summary", {}, "Dims of inputs"), shown) : shown };
}

// The batch is freed where all inputs begin with one number.
function same_batch(about, dim) {
  return about.inputs.filter((input) => input.shape && input.shape.length).every((input) => input.shape[0] === dim || typeof input.shape[0] !== "number");
}

function quantizing(options) {
  const inner = fields(options);
  const on = check("Quantize", false);
  const box = h("fieldset", { hidden: true }, h("legend", {}, "Quantize"), inner.shown);
  on.control.addEventListener("change", () => { box.hidden = !on.control.checked; });
  return { read: () => (on.control.checked ? inner.read() : null), shown: [on.shown, box] };
}

export function file_field(label, accept, page) {
  const id = unique("file");
  let sent = null;
  const said = h("p", { className: "help", role: "status" });
  const control = h("input", {
    id, type: "file", accept,
    onchange: async () => {
      const [file] = control.files;
      sent = null;
      if (!file) return;
      said.textContent = `Sending ${file.name}`;
      try {
        sent = (await page.send(file)).id;
        said.textContent = file.name;
      } catch (error) { said.textContent = error.what; }
    },
  });
  return { id: () => sent || undefined, set: (model) => { sent = model.id; said.textContent = model.name; },
    shown: h("div", { className: "field" }, h("label", { htmlFor: id }, label), control, said) };
}

// ----- what became of the model -----

function result(job, page, dims) {
  const found = job.result;
  if (found.refused) return refusal(found.refused, found.command, page);
  const failed = found.passed === false;
  const [before, after] = found.bytes || [];
  return [
    verdict(found.passed),
    found.verification && h("p", { className: "largest" }, largest(found.verification)),
    failed && !found.verification && problem(found.error),
    failed && h("p", { className: "note" }, "The new model does not give what the original gives, so no file is offered."),
    failed && dims.batch.checked && /free|sizes/.test(found.error.what) && h("p", {}, "Try it without Dynamic batch."),
    !failed && h("dl", { className: "facts" },
      fact("Size", [before === null ? "" : `${megabytes(before)} → `, h("strong", {}, megabytes(after))]),
      fact("Opsets", Object.entries(found.opsets).map(([domain, version]) => `${domain} ${version}`).join(", ")),
      fact("IR version", String(found.ir_version)),
      fact("Nodes", `${found.nodes.kept.toLocaleString("en")} kept, ${found.nodes.rewritten.toLocaleString("en")} rewritten`)),
    job.file && h("p", {}, h("a", { className: "button main", href: `/api/jobs/${job.id}/file`, download: job.file }, "Download"),
      h("span", { className: "filename" }, job.file)),
    found.verification && differences(found.verification),
    found.verification && remarks(found.verification),
    found.verification && found.verification.first_divergence && h("p", {}, "The first node that diverges: ",
      found.verification.first_divergence.node),
    found.quantized && quantized(found.quantized),
    found.notes.length > 0 && h("ul", { className: "remarks" }, found.notes.map((text) => h("li", {}, text))),
    found.nodes.groups.length > 0 && fates(found.nodes.groups, page),
    command(found.command),
  ];
}

const fact = (label, text) => h("div", { className: "part" }, h("dt", {}, label), h("dd", {}, text));

function command(text) {
  return h("details", {}, h("summary", {}, "The same on the command line"), h("pre", { tabIndex: 0 }, text));
}

function quantized(found) {
  const rows = Object.entries(found.outputs || {}).map(([name, error]) => [name, `${(error * 100).toPrecision(3)} %`]);
  return [h("h3", {}, "Quantized"), table(["Output", "Differs by"], rows, "Errors of quantization")];
}

function fates(groups, page) {
  const rows = groups.map((group) => [
    group.op.replace("ai.onnx::", ""), group.action + (group.into ? ` into ${group.into}` : ""), nodes(group.nodes, group.count, page), group.reason,
  ]);
  return h("details", {}, h("summary", {}, "What became of the nodes"),
    table(["Op", "What became of it", "Nodes", "Why"], rows, "What became of the nodes"));
}

function nodes(named, count, page) {
  const link = ([name, key]) => (key ? h("button", { type: "button", className: "link", onclick: () => page.reveal(key) }, name) : h("span", {}, name));
  const shown = named.slice(0, 3).map(link);
  const rest = named.slice(3);
  if (!rest.length) return h("span", { className: "nodes" }, shown);
  return h("span", { className: "nodes" }, shown,
    h("details", {}, h("summary", {}, `${(count - 3).toLocaleString("en")} more`), rest.map(link)));
}

function refusal({ error, blockers }, text, page) {
  const count = blockers.reduce((sum, each) => sum + each.nodes.length, 0);
  return [
    h("p", { className: "verdict failed" }, "Not possible ✗"),
    h("p", {}, blockers.length ? `${plural(count, "place")} of the model ${count === 1 ? "has" : "have"} no form in the target. Choose a node to see it in the drawing.` : ""),
    h("ul", { className: "blockers" }, blockers.map((each) => h("li", {},
      h("strong", {}, each.op.replace("ai.onnx::", "")), h("p", {}, each.reason),
      nodes(each.nodes, each.nodes.length, page),
      each.do && h("p", { className: "do" }, `What to do: ${each.do}`)))),
    !blockers.length && problem(error),
    command(text),
  ];
}
