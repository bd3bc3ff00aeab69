// The page Look: the drawing, and what is known of the box or line that was chosen.

import { look } from "./api.js";
import { $, announce, fill, h, problem } from "./dom.js";
import { Drawing } from "./drawing.js";
import { overview } from "./overview.js";
import { show_node, show_value } from "./pane.js";
import { png, save, svg } from "./pictures.js";
import { heat, legend } from "./tints.js";

// The key of a value is that of its node and the number of the output.
const VALUE = /^(.*\/)?n\d+:\d+$/;
const FUNCTION = /^f(\d+)(\/|$)/;

// A drawing of a model in an element, with its buttons; it opens groups and nodes as it is told.
export class Look {
  constructor(page, model, label, { chosen = () => {}, line = () => {}, moved = () => {}, is_read = true } = {}) {
    Object.assign(this, { page, model, is_read }); // a model that is not read yet is read before it is drawn
    this.opened = null; // keys of what is open, once the drawing has come
    this.asked = 0; // drawings that were asked for: an earlier one that comes late is dropped
    this.function = null; // the number of the function that is drawn instead of the model
    const canvas = h("canvas", { tabIndex: 0, role: "application", "aria-label": `${label}. Arrow keys choose a box, Enter opens it, plus and minus zoom, 0 shows all.` });
    this.drawing = new Drawing(canvas, page.colors, {
      chosen: (key, box, step) => { if (box) announce(`${box[6]} ${box[7].join(", ")} ${this.drawing.data.faults[key] || ""}`); chosen(key, step); },
      line, moved,
      toggled: (key) => this.toggle(key),
      drawn: () => { if (this.opened && !this.element.querySelector(".busy")) this.element.dataset.drawn = String(this.drawing.data.boxes.length); },
    });
    const button = (text, name, action) => h("button", { type: "button", title: name, "aria-label": name, onclick: action }, text);
    this.buttons = h("div", { className: "zoom", role: "toolbar", "aria-label": "View" },
      button("+", "Zoom in", () => this.drawing.zoom(1.3)), button("−", "Zoom out", () => this.drawing.zoom(0.77)),
      button("⤢", "Show all", () => this.drawing.fit()), button("⤒", "To the top", () => this.drawing.begin()));
    this.element = h("div", { className: "drawing" }, this.buttons, canvas);
  }

  async load({ opened = this.opened, reveal = null, everything = false } = {}) {
    const first = this.opened === null, mine = ++this.asked;
    const busy = h("p", { className: "busy", role: "status" }, h("span", { className: "spinner", "aria-hidden": "true" }), "Drawing");
    this.element.append(busy);
    this.element.setAttribute("aria-busy", "true");
    delete this.element.dataset.drawn;
    try {
      if (!this.is_read) await look(this.model.id, "open");
      this.is_read = true;
      const data = await look(this.model.id, "draw", { opened, reveal, everything, function: this.function });
      if (mine !== this.asked) return;
      this.opened = data.opened;
      this.drawing.show(data);
    } finally {
      busy.remove();
      if (!this.element.querySelector(".busy")) this.element.removeAttribute("aria-busy");
      this.drawing.redraw();
    }
    if (first) this.drawing.begin();
  }

  async toggle(key) {
    const before = this.opened, { selected } = this.drawing;
    const open = new Set(before);
    if (!open.delete(key)) open.add(key);
    this.opened = [...open];
    const settle = this.drawing.hold(key);
    try {
      await this.load();
    } catch (error) {
      this.opened = before;
      announce(error.what);
      return;
    }
    settle();
    if (this.drawing.selected === selected) this.drawing.select(key);
  }

  // Shows a box, a value, or a function of the model.
  async reveal(key) {
    const of = key.match(FUNCTION)?.[1];
    const number = of === undefined ? null : Number(of);
    const box = VALUE.test(key) ? key.slice(0, key.lastIndexOf(":")) : key;
    if (number !== this.function) {
      Object.assign(this, { function: number, opened: null });
      this.drawing.path = new Set();
      await this.load();
    }
    if (FUNCTION.test(key) && !key.includes("/")) { this.drawing.select(null); return; }
    if (!this.drawing.places?.has(box)) await this.load({ reveal: box });
    this.drawing.select(box, { center: true, quiet: box !== key });
    if (box !== key) this.drawing.select_value(key);
  }

  // What the eye sees, for a link.
  state() {
    const { x, y, scale } = this.drawing;
    return { opened: this.opened, x: Math.round(x), y: Math.round(y), scale: Number(scale.toFixed(3)) };
  }
}

export async function show_look(page) {
  const { model, about } = page;
  const pane = h("aside", { className: "pane", "aria-label": "Details", tabIndex: 0 });
  const summary = () => fill(pane, overview(page, view));
  const view = new Look(page, model, `Drawing of ${model.name}`, {
    chosen: (key, step) => {
      page.choose(key ?? (view.function === null ? null : `f${view.function}`), step);
      home.hidden = view.function === null;
      if (key === null) summary();
      else show_node(pane, page, view, key);
    },
    line: (key) => { page.choose(key); show_value(pane, page, view, key); },
  });
  view.drawing.back = about.back;
  const costs = h("div", { className: "costs", hidden: true });
  const color = h("select", { id: "color", onchange: () => paint(page, view, color.value, pane, costs).then(below_tools) },
    [["", "kind of op"], ["0", "multiplications"], ["1", "bytes"]].map(([value, text]) => h("option", { value }, text)));
  const again = (question) => view.load(question).then(() => view.drawing.begin()).catch((error) => fill(pane, problem(error)));
  const button = (text, onclick) => h("button", { type: "button", onclick }, text);
  const home = button("Back to the model", () => {
    Object.assign(view, { function: null, opened: null });
    again({}).then(() => view.drawing.select(null));
  });
  home.hidden = true;
  const name = model.name.replace(/^.*\//, "").replace(/\.[^.]*$/, "");
  const tools = h("div", { className: "tools", role: "toolbar", "aria-label": "Drawing" }, home,
    h("label", { htmlFor: "color" }, "Color by"), color,
    button("Open all", () => again({ everything: true })), button("Close all", () => again({ opened: [] })),
    button("SVG", () => save(svg(view.drawing), `${name}.svg`)),
    button("PNG", async () => save(await png(view.drawing), `${name}.png`)),
    button("Copy link", () => copy_link(page, view)), costs);
  fill($("view"), h("div", { className: "looking" }, h("div", { className: "canvas" }, tools, view.element), pane));
  const below_tools = () => view.drawing.begin_below(tools.offsetTop + tools.offsetHeight);
  below_tools();
  page.view = view;
  summary();
  const { kept } = page;
  page.kept = null;
  try {
    await view.load(kept ? { opened: kept.opened } : {});
    if (page.chosen && page.view === view) await view.reveal(page.chosen);
    if (kept && page.view === view) view.drawing.place(kept.x, kept.y, kept.scale);
  } catch (error) { fill(pane, problem(error)); }
}

// Puts a link to what is seen now into the clipboard, and into the address.
async function copy_link(page, view) {
  page.remember_view(view.state());
  try {
    await navigator.clipboard.writeText(location.href);
    announce("The link was copied");
  } catch { announce("The address of the page is the link"); }
}

async function paint(page, view, by, pane, place) {
  view.drawing.tints = new Map();
  view.drawing.redraw();
  place.hidden = true;
  if (by === "") return;
  try {
    page.costs ||= await look(page.model.id, "costs");
    const dark = view.drawing.theme().at === 2;
    view.drawing.tints = heat(page.costs.nodes, Number(by), dark);
    view.drawing.redraw();
    const sizes = Object.entries(page.costs.sizes).map(([name, size]) => `${name} = ${size}`).join(", ");
    fill(place, legend(page.costs.nodes, Number(by), dark), sizes && h("p", { className: "help" }, `where ${sizes}`));
    place.hidden = false;
    announce(`Darker boxes cost more${sizes ? `, where ${sizes}` : ""}`);
  } catch (error) { fill(pane, problem(error)); }
}
