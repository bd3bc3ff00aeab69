// The page Export: options with their defaults, and what became of the model.

import { resume, start } from "./jobs.js";
import { $, fill, h, megabytes, number, plural, problem, table, take_focus, unique } from "./dom.js";
import { keep } from "./keep.js";
import { fields } from "./options.js";
import { differences, largest, remarks, verdict } from "./results.js";

const OPSETS = [13, 14, 15, 16, 17];
const OWN = ["--opset", "--target", "--simplify", "--fix-shapes", "--free-dims", "--dynamic-batch"]; // these have fields of their own

export function show_export(page) {
  const { model, about, form } = page;
  const place = h("section", { className: "card result", "aria-label": "Result" });
  const target = select("Target", "target", [["", "any runtime"], ...Object.keys(form.targets).map((name) => [name, name])]);
  const format = select("Format", "format", Object.entries(form.formats).map(([suffix, title]) => [suffix, `${title} (${suffix})`]));
  const opset = opset_field(about, form, target.control);
  const batch = check("Dynamic batch", "dynamic-batch", true);
  const simplify = has(form.convert, "--simplify") ? check("Simplify", "simplify", true) : null;
  const dims = dim_fields(about, batch.control);
  const more = fields(form.convert.filter((option) => !OWN.includes(option.flag) && (about.made || !option.reading)), "convert");
  const quantize = form.quantize.length ? quantizing(form.quantize) : null;
  const feeds = file_field("Inputs for comparing and calibrating", ".npz,.csv", page, "export");
  const go = h("button", { type: "submit", className: "main" }, "Export");
  const asked = () => {
    const convert = { ...more.read(), ...dims.read() };
    if (target.control.value) convert["--target"] = target.control.value;
    if (opset.asked()) convert["--opset"] = [opset.control.value];
    if (simplify && simplify.control.checked) convert["--simplify"] = true;
    const options = { convert };
    if (format.control.value !== ".onnx") options.format = format.control.value;
    if (quantize && quantize.read()) options.quantize = quantize.read();
    return { task: "export", model: model.id, options, feeds: feeds.id() };
  };
  const finished = (job) => {
    fill(place, result(job, page));
    mark();
  };
  // A result of other options than those that the form has now says so.
  const mark = () => {
    const made_of = sessionStorage.getItem(ASKED + model.id);
    const stale = made_of !== null && made_of !== JSON.stringify(asked());
    place.querySelector(".stale")?.remove();
    if (stale && place.querySelector(".verdict")) place.prepend(h("p", { className: "note stale", role: "status" }, "The options have changed since this result."));
  };
  const submit = (event) => {
    event.preventDefault();
    if (feeds.problem()) { fill(place, problem(feeds.problem())); return; }
    const question = asked();
    sessionStorage.setItem(ASKED + model.id, JSON.stringify(question));
    go.disabled = true;
    start(question, place, finished).finally(() => { go.disabled = false; });
    place.scrollIntoView({ block: "nearest", behavior: "smooth" });
    take_focus(place);
  };
  fill(place, h("p", { className: "empty" }, "Export checks the new model: it runs both on the same inputs and compares every output."));
  const shown = h("form", { className: "card", onsubmit: submit, "aria-label": "Export" },
    h("h2", {}, "Export"),
    h("div", { className: "row" }, format.shown, opset.shown, target.shown),
    dims.shown,
    h("div", { className: "checks" }, batch.shown, simplify && simplify.shown),
    h("details", { className: "more" }, h("summary", {}, "More"), feeds.shown, quantize && quantize.shown, more.shown),
    go);
  fill($("view"), h("div", { className: "columns" }, shown, place));
  keep(shown, `export-${model.id}`, mark);
  feeds.changed = mark;
  resume({ task: "export", model: model.id }, place, finished);
}

const ASKED = "tenonnx-asked-";

const has = (options, flag) => options.some((option) => option.flag === flag);

function others() {
  const found = [];
  for (let n = 7; n <= 28; n++) if (!OPSETS.includes(n)) found.push(n);
  return found;
}

function select(label, name, choices) {
  const id = unique("choice");
  const control = h("select", { id, name }, choices.map(([each, text]) => h("option", { value: each }, text)));
  return { control, shown: h("div", { className: "field" }, h("label", { htmlFor: id }, label), control) };
}

// The opset: 17, or with a target its own, until another is chosen.
function opset_field(about, form, target) {
  const field = select("Opset", "opset", [...OPSETS, ...others()].map((n) => [n, String(n)]));
  const help = h("p", { className: "help" });
  field.shown.append(help);
  const chosen = h("input", { type: "hidden", name: "opset-chosen", value: "" });
  field.shown.append(chosen);
  const usual = () => (target.value ? form.targets[target.value].opsets["ai.onnx"] ?? about.opsets["ai.onnx"] : 17);
  const show = () => {
    const wanted = String(usual() ?? 17);
    if (!chosen.value) {
      if (![...field.control.options].some((option) => option.value === wanted)) field.control.append(h("option", { value: wanted }, wanted));
      field.control.value = wanted;
    }
    const own = target.value && form.targets[target.value].opsets["ai.onnx"] !== undefined;
    help.textContent = !target.value || chosen.value ? "" : own ? "The opset of the target" : "The opset of the model, as the target takes any";
  };
  field.control.addEventListener("change", () => { chosen.value = "yes"; show(); });
  target.addEventListener("change", () => { chosen.value = ""; show(); });
  target.addEventListener("restored", show);
  field.control.value = "17";
  show();
  return { control: field.control, shown: field.shown, asked: () => chosen.value !== "" || !target.value };
}

function check(label, name, on) {
  const id = unique("check");
  const control = h("input", { id, name, type: "checkbox", checked: on });
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
      const control = h("input", { id, name: `dim-${input.name}-${axis}`, type: "text", value: dim ?? "", autocomplete: "off", placeholder: "any", size: 8 });
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
      if (!batch.checked && typeof dim !== "number") set(input, 0, "1", dim);
    }
    const said = {};
    if (batch.checked && about.inputs.some((input) => input.shape && typeof input.shape[0] === "number")) said["--dynamic-batch"] = "try";
    if (Object.keys(fixed).length) said["--fix-shapes"] = Object.entries(fixed).map(([name, dims]) => `${name}:${dims.join(",")}`);
    if (Object.keys(freed).length) said["--free-dims"] = Object.entries(freed).map(([name, axes]) =>
      `${name}:${Object.entries(axes).map(([axis, symbol]) => `${axis}=${symbol}`).join(",")}`);
    return said;
  };
  return { read, shown: folded ? h("details", {}, h("summary", {}, "Dims of inputs"), shown) : shown };
}

function quantizing(options) {
  const inner = fields(options, "quantize");
  const on = check("Quantize", "quantize", false);
  const box = h("fieldset", { hidden: true }, h("legend", {}, "Quantize"), inner.shown);
  for (const event of ["change", "restored"]) on.control.addEventListener(event, () => { box.hidden = !on.control.checked; });
  return { read: () => (on.control.checked ? inner.read() : null), shown: [on.shown, box] };
}

// A field for a file that is sent at once, and kept for the tab `tab` of its model. What was refused stays refused until
// another file is chosen or the field is emptied.
export function file_field(label, accept, page, tab) {
  const id = unique("file");
  const kept = (page.feeds[`${page.model.id}/${tab}`] ||= { sent: null, error: null });
  const said = h("p", { className: "help", role: "status" });
  const field = { changed: () => {} };
  const show = () => {
    said.textContent = kept.error ? kept.error.what : kept.sent ? kept.sent.name : "";
    drop.hidden = !kept.sent && !kept.error;
    field.changed();
  };
  const control = h("input", {
    id, type: "file", accept,
    onchange: async () => {
      const [file] = control.files;
      Object.assign(kept, { sent: null, error: null });
      if (!file) { show(); return; }
      said.textContent = `Sending ${file.name}`;
      try {
        kept.sent = await page.send_feeds(file);
      } catch (error) { kept.error = error; }
      show();
    },
  });
  const drop = h("button", { type: "button", className: "link", hidden: true, onclick: () => {
    control.value = "";
    Object.assign(kept, { sent: null, error: null });
    show();
  } }, "Without this file");
  show();
  return Object.assign(field, {
    id: () => kept.sent?.id, problem: () => kept.error, set: (sent) => { Object.assign(kept, { sent, error: null }); show(); },
    shown: h("div", { className: "field" }, h("label", { htmlFor: id }, label), control, said, drop),
  });
}

// ----- what became of the model -----

function result(job, page) {
  const found = job.result;
  if (found.refused) return refusal(found.refused, found.command, page, job);
  const failed = found.passed === false;
  const [before, after] = found.bytes || [];
  return [
    verdict(found.passed),
    found.verdict && h("p", { className: "said" }, said(found.verdict)),
    found.verification && h("p", { className: "largest" }, largest(found.verification)),
    failed && !found.verification && problem(found.error),
    failed && h("p", { className: "note" }, "The new model does not give what the original gives, so no file is offered."),
    !failed && h("dl", { className: "facts" },
      fact("Size", [before === null ? "" : `${megabytes(before)} → `, h("strong", {}, megabytes(after))]),
      fact("Opsets", Object.entries(found.opsets).map(([domain, version]) => `${domain} ${version}`).join(", ")),
      fact("IR version", String(found.ir_version)),
      fact("Nodes", `${found.nodes.kept.toLocaleString("en")} kept, ${found.nodes.rewritten.toLocaleString("en")} rewritten`)),
    job.file && h("p", {}, h("a", { className: "button main", href: `/api/jobs/${job.id}/file`, download: job.file }, "Download"),
      h("span", { className: "filename" }, job.file)),
    reports(job),
    found.quantized ? quantized(found) : found.verification && differences(found.verification),
    found.verification && remarks(found.verification),
    found.verification && found.verification.first_divergence && h("p", {}, "The first node that diverges: ",
      found.verification.first_divergence.node),
    found.notes.length > 0 && h("ul", { className: "remarks" }, found.notes.map((text) => h("li", {}, text))),
    found.nodes.groups.length > 0 && fates(found.nodes.groups, page),
    command(found.command),
  ];
}

const fact = (label, text) => h("div", { className: "part" }, h("dt", {}, label), h("dd", {}, text));

function command(text) {
  return h("details", {}, h("summary", {}, "The same on the command line"), h("pre", { tabIndex: 0 }, text));
}

const said = (text) => (text ? text[0].toUpperCase() + text.slice(1) : "");

// Outputs of a quantized file are to differ: told is how far, by the original's own size.
function quantized({ quantized: found, verification }) {
  const largest = (name) => Math.max(...(verification?.outputs || []).filter((each) => each.name === name && each.absolute !== null).map((each) => each.absolute));
  const rows = Object.entries(found.outputs || {}).map(([name, error]) => [
    name, Number.isFinite(largest(name)) ? number(largest(name)) : "", `${(error * 100).toPrecision(3)} %`,
    found.sqnr?.[name] === undefined || found.sqnr[name] === null ? "" : `${found.sqnr[name].toFixed(1)} dB`]);
  return [h("h3", {}, "Quantized, beside the original"), table(["Output", "Largest difference", "Error", "SQNR"], rows, "Errors of quantization")];
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

const reports = (job) => h("p", { className: "downloads" }, "Report", ["html", "md"].map((format) =>
  h("a", { href: `/api/jobs/${job.id}/report.${format}`, download: "" }, format === "md" ? "Markdown" : "HTML")));

function refusal({ error, blockers }, text, page, job) {
  const count = blockers.reduce((sum, each) => sum + each.nodes.length, 0);
  return [
    h("p", { className: "verdict failed" }, "Not possible ✗"),
    h("p", {}, blockers.length ? `${plural(count, "place")} of the model ${count === 1 ? "has" : "have"} no form in the target. Choose a node to see it in the drawing.` : ""),
    h("ul", { className: "blockers" }, blockers.map((each) => h("li", {},
      h("strong", {}, each.op.replace("ai.onnx::", "")), h("p", {}, each.reason),
      nodes(each.nodes, each.nodes.length, page),
      each.do && h("p", { className: "do" }, `What to do: ${each.do}`)))),
    !blockers.length && problem(error),
    reports(job),
    command(text),
  ];
}
