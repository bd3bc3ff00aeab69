// The page: which model is open, and what is shown of it.

import { ask, look, send, state } from "./api.js";
import { $, announce, fill, h, problem, unique } from "./dom.js";
import { show_compare } from "./compare.js";
import { show_export } from "./export.js";
import { show_look } from "./look.js";
import { show_run } from "./run.js";
import { search } from "./search.js";

const TABS = { export: show_export, look: show_look, compare: show_compare, run: show_run };

const page = {
  model: null, about: null, models: [], files: [], form: null, colours: null, view: null, wanted: null, tab: "export",

  async send(file, beside = "", progress) {
    const model = await send(file.name, file, { beside, progress });
    page.models.push(model);
    return model;
  },

  async open_file(file) {
    const model = await ask("/models", { file });
    if (!page.models.some((each) => each.id === model.id)) page.models.push(model);
    return model;
  },

  // Shows a node in the drawing.
  reveal(key) {
    if (page.tab === "look" && page.view) { page.view.reveal(key).catch((error) => announce(error.what)); return; }
    page.wanted = key;
    show("look");
  },
};

async function begin() {
  const theme = localStorage.getItem("tenonnx-theme");
  if (theme) document.documentElement.dataset.theme = theme;
  try {
    Object.assign(page, await state());
  } catch (error) { fill($("view"), problem(error)); return; }
  const [id, tab] = location.hash.slice(1).split("/");
  const known = page.models.find((model) => model.id === id) || (page.models.length === 1 && !page.files.length ? page.models[0] : null);
  if (known) await open(known, tab);
  else welcome();
}

function remember() {
  history.replaceState(null, "", page.model ? `#${page.model.id}/${page.tab}` : "#");
}

async function open(model, tab = "export") {
  Object.assign(page, { model, about: null, costs: null, statistics: null, view: null });
  $("model").textContent = model.name;
  $("model").hidden = false;
  document.title = `${model.name} – tenonnx`;
  fill($("view"), h("p", { className: "loading" }, h("span", { className: "spinner", "aria-hidden": "true" }), `Reading ${model.name}`));
  try {
    page.about = await look(model.id, "open");
  } catch (error) {
    fill($("view"), h("div", { className: "card" }, problem(error), missing_data(model), again()));
    return;
  }
  $("tabs").hidden = $("find").hidden = false;
  show(tab in TABS ? tab : "export");
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
  return h("div", { className: "field" }, h("label", { htmlFor: id }, "Files with the weights of this model, if it has such"), control);
}

const again = () => h("p", {}, h("button", { type: "button", onclick: welcome }, "Open another model"));

function show(tab) {
  page.tab = tab;
  page.view = null;
  for (const button of document.querySelectorAll("#tabs button")) {
    if (button.dataset.tab === tab) button.setAttribute("aria-current", "page");
    else button.removeAttribute("aria-current");
  }
  remember();
  TABS[tab](page);
}

function welcome() {
  page.model = null;
  $("model").hidden = true;
  $("tabs").hidden = $("find").hidden = true;
  document.title = "tenonnx";
  remember();
  const said = h("div", {});
  const id = unique("open");
  const take = async (files) => {
    const [first, ...others] = [...files].sort((a, b) => Number(is_model(b)) - Number(is_model(a)));
    if (!first) return;
    const bar = h("progress", { max: 1, value: 0, "aria-label": `Sending ${first.name}` });
    fill(said, h("p", {}, `Sending ${first.name}`), bar);
    try {
      const model = await page.send(first, "", (share) => { bar.value = share; });
      for (const file of others) await page.send(file, model.id);
      await open(model);
    } catch (error) { fill(said, problem(error)); }
  };
  const control = h("input", { id, type: "file", multiple: true, onchange: () => take(control.files) });
  const files = page.files.map((file) => h("li", {}, h("button", { type: "button", className: "link", onclick: async () => {
    try {
      await open(await page.open_file(file));
    } catch (error) { fill(said, problem(error)); }
  } }, file)));
  const opened = page.models.filter((model) => is_model({ name: model.name }) || model.name.includes(".py:")).map((model) => h("li", {},
    h("button", { type: "button", className: "link", onclick: () => open(model) }, model.name)));
  fill($("view"), h("div", { className: "welcome" },
    h("h1", {}, "Export, look at, compare and run a model"),
    h("div", { className: "card drop-here" },
      h("label", { htmlFor: id }, h("strong", {}, "Choose a model"), " or drop it anywhere on this page"), control,
      h("p", { className: "help" }, "A .onnx file, together with its .data file if it has one. It stays on this machine."), said),
    opened.length > 0 && h("section", { className: "card" }, h("h2", {}, "Open"), h("ul", { className: "files" }, opened)),
    files.length > 0 && h("section", { className: "card" }, h("h2", {}, "In the folder"), h("ul", { className: "files" }, files))));
  page.take = take;
}

const is_model = (file) => /\.(onnx|safetensors)$/i.test(file.name);

$("home").onclick = welcome;
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
