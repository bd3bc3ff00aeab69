// The page: which model is open, and what is shown of it.

import { ask, look, send, state } from "./api.js";
import { watch } from "./connection.js";
import { $, announce, fill, h, problem, take_focus, unique } from "./dom.js";
import { show_compare } from "./compare.js";
import { show_explain } from "./explain.js";
import { show_export } from "./export.js";
import { show_look } from "./look.js";
import { show_run } from "./run.js";
import { search } from "./search.js";

const TABS = { export: show_export, look: show_look, compare: show_compare, run: show_run, explain: show_explain };

const page = {
  model: null, about: null, models: [], files: [], form: null, colors: null, view: null, tab: "export",
  feeds: {}, chosen: null, // files of inputs by model and tab, and the key of the node that is chosen
  other: null, // the id and the name of the model that is compared with
  kept: null, // what the eye saw of the drawing, in the link that was opened

  async send(file, beside = "", progress, cancelled) {
    const model = await send(file.name, file, { beside, progress, cancelled });
    if (!beside) page.models.push(model);
    return model;
  },

  // Values of inputs, which are no model.
  send_feeds: (file) => send(file.name, file, { feeds: true }),

  async open_file(file) {
    const model = await ask("/models", { file });
    if (!page.models.some((each) => each.id === model.id)) page.models.push(model);
    return model;
  },

  // Shows a node in the drawing, where arrow keys go on.
  reveal(key) {
    if (page.tab === "look" && page.view) page.view.reveal(key).catch((error) => announce(error.what));
    else {
      page.chosen = key;
      show("look");
    }
    take_focus(page.view.drawing.canvas);
  },

  // Notes the model that is compared with in the address; `replace` it where the address had it already.
  compare_with(other, replace = false) {
    page.other = other;
    remember(replace);
  },

  // The model of an id or, after a restart of the server, of a name.
  known: ({ id, name }) => page.models.find((model) => model.id === id) || by_name(name),

  // A field for the files with the weights of the model.
  missing_data: () => missing_data(page.model),

  // Notes what the eye sees in the address.
  remember_view: (view) => remember(true, view),

  // Notes the chosen node in the address; steps by arrow keys make one entry of the history.
  choose(key, step = false) {
    if (page.chosen === key) return;
    page.chosen = key;
    remember(step && stepping);
    stepping = step;
  },
};

async function begin() {
  const theme = localStorage.getItem("tenonnx-theme");
  if (theme) document.documentElement.dataset.theme = theme;
  try {
    Object.assign(page, await state());
    if (page.form.explain.length) document.querySelector("[data-tab=explain]").hidden = false;
    else delete TABS.explain;
  } catch (error) { fill($("view"), problem(error)); return; }
  watch(page.server, regained);
  await go();
}

// Opens what the address says.
async function go() {
  const known = find(place()) || (page.models.length === 1 && !page.files.length && !location.hash.slice(1) ? page.models[0] : null);
  page.kept = place().view;
  if (known) await open(known, place(), true);
  else await again_by_name();
}

// After a server that was lost is back, or another in its place. Where the page missed nothing, it stays as it is.
async function regained(changed, missed) {
  Object.assign(page, await state());
  if (changed) Object.assign(page, { feeds: {}, statistics: null });
  else if (!missed) return;
  if (!page.model) welcome(true);
  else if (changed || !page.about) await go();
  else {
    const held = $("view").contains(document.activeElement);
    show(page.tab, true);
    if (held) take_focus(page.view?.drawing.canvas ?? $("view"));
  }
}

// The address is #model/tab/node/name/view, or #model/compare/other/name/name of the other: names find the models of a
// server that was started again.
function place() {
  const [id, tab, node, name, last] = location.hash.slice(1).split("/").map(decodeURIComponent);
  if (tab === "compare") return { id, tab, name, other: node ? { id: node, name: last } : null };
  try { return { id, tab, node, name, view: last ? JSON.parse(last) : null }; } catch { return { id, tab, node, name }; }
}

const find = ({ id }) => page.models.find((model) => model.id === id);

// After a restart of the server a model has another id: one of the same name is opened, from the folder where it is there.
async function again_by_name() {
  const known = await by_name(place().name);
  if (known) await open(known, place(), true);
  else welcome();
}

async function by_name(name) {
  const known = page.models.find((model) => model.name === name);
  return known || (page.files.includes(name) ? page.open_file(name).catch(() => null) : null);
}

// Whether the last entry of the history is of a step by an arrow key.
let stepping = false;

function remember(replace = false, view = null) {
  const [third, last] = page.tab === "compare" ? [page.other?.id, page.other?.name] : [page.chosen, view && JSON.stringify(view)];
  const parts = page.model ? [page.model.id, page.tab, third || "", page.model.name, ...(last ? [last] : [])] : [];
  const address = `#${parts.map(encodeURIComponent).join("/")}`;
  if (address === location.hash) return;
  if (replace) history.replaceState(null, "", address);
  else {
    history.pushState(null, "", address);
    stepping = false;
  }
}

addEventListener("popstate", () => {
  stepping = false;
  const wanted = place(), { tab, node } = wanted;
  const known = find(wanted);
  if (!known) welcome(true);
  else if (known.id !== page.model?.id || !page.about) open(known, wanted, true);
  else {
    if (tab === "compare") page.other = wanted.other;
    else page.chosen = node || null;
    if (tab === page.tab && page.view && node) page.view.reveal(node).catch((error) => announce(error.what));
    else if (tab === page.tab && page.view && page.view.function === null) page.view.drawing.select(null);
    else show(tab in TABS ? tab : "export", true);
  }
});

// The opening that is shown: what comes back of an earlier one is dropped.
let opening = 0;

// Opens a model at a place.
async function open(model, { tab = "export", node = null, other = null } = {}, replace = false) {
  const mine = ++opening;
  Object.assign(page, { model, about: null, costs: null, statistics: null, view: null, chosen: node || null, other });
  $("model").textContent = model.name;
  $("model").hidden = false;
  $("tabs").hidden = $("find").hidden = true;
  document.title = `${model.name} – tenonnx`;
  fill($("view"), h("p", { className: "loading" }, h("span", { className: "spinner", "aria-hidden": "true" }), `Reading ${model.name}`));
  let about;
  try {
    about = await look(model.id, "open");
  } catch (error) {
    if (mine === opening) fill($("view"), h("div", { className: "card" }, problem(error), missing_data(model), again()));
    return;
  }
  if (mine !== opening) return;
  page.about = about;
  $("tabs").hidden = $("find").hidden = false;
  show(about.broken ? "look" : tab in TABS ? tab : "export", replace);
  take_focus($("view"));
}

// Where a model has its weights in another file, that can be sent, too.
function missing_data(model) {
  const id = unique("data");
  const control = h("input", { id, type: "file", multiple: true, onchange: async () => {
    try {
      for (const file of control.files) await page.send(file, model.id);
      open(model);
    } catch (error) { announce(error.what); control.after(problem(error)); }
  } });
  return h("div", { className: "field" }, h("label", { htmlFor: id }, "External data files, if the model has any"), control);
}

const broken = () => h("div", { className: "card" }, h("h2", {}, "This file breaks a rule of ONNX"), problem(page.about.broken),
  h("p", {}, h("button", { type: "button", className: "main", onclick: () => show("look") }, "Look at its faults")));

const again = () => h("p", {}, h("button", { type: "button", onclick: () => welcome() }, "Open another model"));

function show(tab, replace = false) {
  page.tab = tab;
  page.view = null;
  for (const button of document.querySelectorAll("#tabs button")) {
    if (button.dataset.tab === tab) button.setAttribute("aria-current", "page");
    else button.removeAttribute("aria-current");
  }
  remember(replace, tab === "look" ? page.kept : null);
  if (page.about.broken && tab !== "look") fill($("view"), broken());
  else TABS[tab](page);
}

function welcome(replace = false) {
  opening++;
  Object.assign(page, { model: null, about: null, view: null, chosen: null, other: null });
  $("model").hidden = true;
  $("tabs").hidden = $("find").hidden = true;
  document.title = "tenonnx";
  remember(replace === true);
  const said = h("div", {});
  const id = unique("open");
  const take = async (files) => {
    const [first, ...others] = [...files].sort((a, b) => Number(is_model(b)) - Number(is_model(a)));
    if (!first) return;
    const bar = h("progress", { max: 1, value: 0, "aria-label": `Sending ${first.name}` });
    const ending = new AbortController();
    const told = h("p", {}, `Sending ${first.name}`);
    fill(said, told, bar, h("p", {}, h("button", { type: "button", onclick: () => ending.abort() }, "Cancel")));
    const share = (sent) => { bar.value = sent; };
    try {
      const model = await page.send(first, "", share, ending.signal);
      for (const file of others) {
        told.textContent = `Sending ${file.name}`;
        await page.send(file, model.id, share, ending.signal);
      }
      await open(model);
    } catch (error) { fill(said, problem(error)); }
  };
  const control = h("input", { id, type: "file", multiple: true, onchange: () => take(control.files) });
  const files = page.files.map((file) => h("li", {}, h("button", { type: "button", className: "link", onclick: async () => {
    try {
      await open(await page.open_file(file));
    } catch (error) { fill(said, problem(error)); }
  } }, file)));
  const opened = page.models.map((model) => h("li", {},
    h("button", { type: "button", className: "link", onclick: () => open(model) }, model.name)));
  fill($("view"), h("div", { className: "welcome" },
    h("h1", {}, "Export, look at, compare and run a model"),
    h("div", { className: "card drop-here" },
      h("label", { htmlFor: id }, h("strong", {}, "Choose a model"), " or drop it anywhere on this page"), control,
      h("p", { className: "help" }, "A .onnx file, together with its .data file if it has one, or what an installed front end reads, such as .keras, .tflite, .skops, or a SavedModel as .zip. It stays on this machine, and no code in it is run."), said),
    opened.length > 0 && h("section", { className: "card" }, h("h2", {}, "Open"), h("ul", { className: "files" }, opened)),
    files.length > 0 && h("section", { className: "card" }, h("h2", {}, "In the folder"), h("ul", { className: "files" }, files))));
  page.take = take;
}

const is_model = (file) => [...page.form.suffixes, ".zip"].some((suffix) => file.name.toLowerCase().endsWith(suffix));

$("home").onclick = () => welcome();
$("find").onclick = () => page.about && search(page);
$("theme").onclick = () => {
  const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("tenonnx-theme", document.documentElement.dataset.theme);
  page.view?.drawing.redraw();
};
for (const button of document.querySelectorAll("#tabs button")) button.onclick = () => show(button.dataset.tab);
addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k" && page.about) {
    event.preventDefault();
    search(page);
  }
});
addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", (event) => {
  event.preventDefault();
  if (!event.dataTransfer.files.length) return;
  if (page.model) welcome();
  page.take?.(event.dataTransfer.files);
});
begin();
