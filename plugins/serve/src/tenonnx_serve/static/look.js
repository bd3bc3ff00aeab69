// The page Look: the drawing, and what is known of the box that was chosen.

import { look } from "./api.js";
import { $, announce, fill, h, plural, problem } from "./dom.js";
import { Drawing } from "./drawing.js";
import { show_node } from "./pane.js";
import { heat } from "./tints.js";

// A drawing of a model in an element, with its buttons; it opens groups and nodes as it is told.
export class Look {
  constructor(page, model, label, chosen = () => {}) {
    Object.assign(this, { page, model });
    this.opened = null;
    const canvas = h("canvas", { tabIndex: 0, role: "application", "aria-label": `${label}. Arrow keys choose a box, Enter opens it, plus and minus zoom, 0 shows all.` });
    this.drawing = new Drawing(canvas, page.colours, {
      chosen: (key, box) => { if (box) announce(`${box[6]} ${box[7].join(", ")}`); chosen(key, box); },
      toggled: (key) => this.toggle(key),
      drawn: () => { this.element.dataset.drawn = String(this.drawing.data.boxes.length); },
    });
    const button = (text, name, action) => h("button", { type: "button", title: name, "aria-label": name, onclick: action }, text);
    this.buttons = h("div", { className: "zoom", role: "toolbar", "aria-label": "View" },
      button("+", "Zoom in", () => this.drawing.zoom(1.3)), button("−", "Zoom out", () => this.drawing.zoom(0.77)),
      button("⤢", "Show all", () => this.drawing.fit()), button("⤒", "To the top", () => this.drawing.begin()));
    this.element = h("div", { className: "drawing" }, canvas, this.buttons);
  }

  async load({ opened = this.opened, reveal = null } = {}) {
    const first = this.opened === null;
    const data = await look(this.model.id, "draw", { opened, reveal });
    this.opened = data.opened;
    this.drawing.show(data);
    if (first) this.drawing.begin();
  }

  async toggle(key) {
    const open = new Set(this.opened);
    if (!open.delete(key)) open.add(key);
    const settle = this.drawing.hold(key);
    try {
      await this.load({ opened: [...open] });
    } catch (error) { announce(error.what); return; }
    settle();
    this.drawing.select(key);
  }

  async reveal(key) {
    if (!this.drawing.places?.has(key)) await this.load({ reveal: key });
    this.drawing.select(key, { centre: true });
  }
}

export async function show_look(page) {
  const { model, about } = page;
  const pane = h("aside", { className: "pane", "aria-label": "Details" });
  const summary = () => fill(pane, overview(about));
  const view = new Look(page, model, `Drawing of ${model.name}`, (key) => {
    if (key === null) summary();
    else show_node(pane, page, view, key);
  });
  const colour = h("select", { id: "colour", onchange: () => paint(page, view, colour.value, pane) },
    [["", "kind of op"], ["0", "multiplications"], ["1", "bytes"]].map(([value, text]) => h("option", { value }, text)));
  fill($("view"), h("div", { className: "looking" },
    h("div", { className: "canvas" }, view.element,
      h("div", { className: "tools" }, h("label", { htmlFor: "colour" }, "Colour by"), colour,
        h("button", { type: "button", onclick: () => view.load({ opened: [] }).then(() => view.drawing.begin()) }, "Close all"))),
    pane));
  page.view = view;
  summary();
  try {
    await view.load();
    if (page.wanted) {
      const key = page.wanted;
      page.wanted = null;
      await view.reveal(key);
    }
  } catch (error) { fill(pane, problem(error)); }
}

function overview(about) {
  const values = (title, list) => [h("h3", {}, title), h("ul", { className: "values" }, list.map((each) =>
    h("li", {}, h("span", { className: "name" }, each.name), " ", h("code", {}, each.type))))];
  const ops = about.ops.slice(0, 30).map((each) => h("li", { className: each.known ? "" : "missing" },
    h("span", { className: "name" }, each.op), ` ${each.count.toLocaleString("en")}`, each.known ? "" : h("span", { className: "help" }, each.missing)));
  return [
    h("h2", {}, about.name || "Model"),
    h("p", { className: "help" }, `${plural(about.index.length, "node")}, ${plural(about.weights.count, "weight")}, opset ${Object.entries(about.opsets).map(([domain, version]) => `${domain} ${version}`).join(", ")}`),
    about.producer && h("p", { className: "help" }, `Made by ${about.producer}`),
    values("Inputs", about.inputs), values("Outputs", about.outputs),
    h("h3", {}, "Ops"), h("ul", { className: "values ops" }, ops),
    about.problems.length > 0 && [h("h3", {}, "Problems"), h("ul", { className: "remarks" }, about.problems.map((text) => h("li", {}, text)))],
  ];
}

async function paint(page, view, by, pane) {
  view.drawing.tints = new Map();
  view.drawing.redraw();
  if (by === "") return;
  try {
    page.costs ||= await look(page.model.id, "costs");
    view.drawing.tints = heat(page.costs.nodes, Number(by), view.drawing.theme().at === 2);
    view.drawing.redraw();
    const sizes = Object.entries(page.costs.sizes).map(([name, size]) => `${name} = ${size}`).join(", ");
    announce(`Darker boxes cost more${sizes ? `, where ${sizes}` : ""}`);
  } catch (error) { fill(pane, problem(error)); }
}
