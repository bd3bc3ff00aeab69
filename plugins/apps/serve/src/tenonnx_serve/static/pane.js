// What is known of one box or one value: op, types, attributes, documentation, weights, where it comes from and goes to.

import { look } from "./api.js";
import { announce, documentation, fill, h, megabytes, number, plural, problem } from "./dom.js";
import { compute } from "./jobs.js";

export async function show_node(pane, page, view, key) {
  if (key.includes("g:")) { fill(pane, group(view, key)); return; }
  let node;
  try {
    node = await look(view.model.id, "node", { key });
  } catch (error) { fill(pane, problem(error)); return; }
  if (view.drawing.selected !== key) return;
  if (node.value) {
    fill(pane, h("h2", {}, node.title), faults(node), h("p", {}, h("code", {}, node.value.type)), links(page, node.value), way(page, view, key));
    return;
  }
  const box = view.drawing.places.get(key);
  fill(pane,
    h("h2", {}, node.op, h("span", { className: "help" }, ` version ${node.version}`)),
    node.name && h("p", { className: "name" }, node.name), faults(node),
    box && box[8] > 0 && h("p", {}, h("button", { type: "button", onclick: () => view.toggle(key) },
      box[8] === 2 ? "Close" : node.subgraphs.length ? "Open its subgraphs" : "Expand: show its definition")),
    node.function !== null && h("p", {}, link(page, { key: `f${node.function}`, label: "The function on a page of its own" })),
    statistics(page, view, page.statistics?.[key]),
    values("Inputs", node.inputs, page, view, key), values("Outputs", node.outputs, page, view, key), way(page, view, key),
    attributes(node),
    node.doc && [h("h3", {}, "Doc string"), documentation(node.doc)],
    Object.keys(node.metadata).length > 0 && [h("h3", {}, "Metadata"), h("dl", { className: "metadata" },
      Object.entries(node.metadata).map(([name, text]) => h("div", {}, h("dt", {}, name), h("dd", {}, text))))],
    node.documentation && [h("h3", {}, "Documentation"), documentation(node.documentation)],
    node.package && h("p", { className: "help" }, `Provided by ${node.package}`));
}

// What is known of the value of a line.
export async function show_value(pane, page, view, key) {
  let value;
  try {
    value = await look(view.model.id, "value", { key });
  } catch (error) { fill(pane, problem(error)); return; }
  if (view.drawing.value !== key) return;
  const known = page.statistics?.[key.slice(0, key.lastIndexOf(":"))]?.[value.name];
  fill(pane, h("h2", {}, value.name), h("p", {}, h("code", {}, value.type)),
    statistics(page, view, known && { [value.name]: known }), links(page, value),
    !known && !key.includes("/") && /:\d+$/.test(key) && downloads(page, view, value.name));
}

const link = (page, { key, label }) => h("button", { type: "button", className: "link", onclick: () => page.reveal(key) }, label);

const faults = (node) => node.faults.map((text) => h("p", { className: "problem" }, text));

// Where a value comes from and goes to.
function links(page, value) {
  const rest = value.readers - value.to.length;
  return [
    value.from && [h("h3", {}, "Comes from"), h("p", {}, link(page, value.from))],
    value.to.length > 0 && [h("h3", {}, "Goes to"), h("ul", { className: "values" }, value.to.map((each) => h("li", {}, link(page, each)))),
      rest > 0 && h("p", { className: "help" }, `and ${plural(rest, "other")}`)],
  ];
}

// The way to an output, drawn and as links.
function way(page, view, key) {
  const place = h("div", {});
  const show = async () => {
    try {
      const { steps } = await look(view.model.id, "path", { key });
      view.drawing.path = new Set(steps.map((each) => each.key));
      view.drawing.redraw();
      fill(place, steps.length ? [h("h3", {}, `${plural(steps.length - 1, "step")} to the output`),
        h("ol", { className: "steps" }, steps.map((each) => h("li", {}, link(page, each)))),
        h("button", { type: "button", onclick: () => { view.drawing.path = new Set(); view.drawing.redraw(); begin(); } }, "Hide the path")]
        : h("p", { className: "help" }, "No output depends on it."));
    } catch (error) { fill(place, problem(error)); }
  };
  const begin = () => fill(place, h("p", {}, h("button", { type: "button", onclick: show }, "Path to the output")));
  begin();
  return place;
}

function group(view, key) {
  const box = view.drawing.places.get(key), fault = view.drawing.data.faults[key];
  return [h("h2", {}, box ? box[6] : key), h("p", { className: "help" }, key.slice(key.lastIndexOf("g:") + 2)),
    fault && h("p", { className: "problem" }, fault),
    h("p", {}, h("button", { type: "button", onclick: () => view.toggle(key) }, box && box[8] === 2 ? "Close" : "Open"))];
}

function values(title, list, page, view, key) {
  if (!list.length) return [];
  const ends = (each) => (title === "Inputs" ? [each.from].filter(Boolean) : each.to);
  return [h("h3", {}, title), h("ul", { className: "values" }, list.map((each) => h("li", {},
    each.called && h("span", { className: "called" }, each.called), " ",
    each.key && !each.constant ? link(page, { key: each.key, label: each.name }) : h("span", { className: "name" }, each.name), " ", h("code", {}, each.type),
    !each.constant && ends(each).length > 0 && h("span", { className: "ends" }, title === "Inputs" ? "from " : "to ",
      ends(each).map((end) => [link(page, end), " "])),
    each.constant && h("span", { className: "help" }, ` ${megabytes(each.bytes)}`),
    each.missing && h("p", { className: "problem" }, `Its data is missing: ${each.missing}`),
    each.contents && h("pre", { tabIndex: 0 }, each.contents),
    each.constant && !each.missing && title === "Inputs" && weights(view, key, each))))];
}

function weights(view, key, value) {
  const file = (format) => h("a", { download: "", href: `/api/models/${view.model.id}/array?${new URLSearchParams({ key, place: value.place, format })}`,
    "aria-label": `${value.name} as ${format}` }, format);
  const place = h("div", { className: "downloads" });
  const open = h("button", { type: "button", className: "link", onclick: async () => {
    try { fill(place, histogram(await look(view.model.id, "histogram", { key, place: value.place }), value.name), h("div", { className: "downloads" }, file(".npy"), file(".csv"))); }
    catch (error) { fill(place, problem(error)); }
  } }, "Histogram");
  if (value.bytes > 64) place.append(open);
  place.append(file(".npy"), file(".csv"));
  return place;
}

const SVG = "http://www.w3.org/2000/svg";

function histogram(found, name) {
  const most = Math.max(...found.counts, 1), width = 240, height = 70;
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("role", "img");
  svg.setAttribute("class", "histogram");
  svg.setAttribute("aria-label", `Histogram of ${name}, from ${number(found.edges[0])} to ${number(found.edges[1])}`);
  const step = width / found.counts.length;
  found.counts.forEach((count, k) => {
    const bar = document.createElementNS(SVG, "rect");
    const size = count ? Math.max(1, (count / most) * height) : 0;
    for (const [key, value] of Object.entries({ x: k * step, y: height - size, width: Math.max(step - 0.7, 0.5), height: size })) bar.setAttribute(key, value);
    svg.append(bar);
  });
  return [svg, h("div", { className: "axis" }, h("span", {}, number(found.edges[0])), h("span", {}, number(found.edges[1]))),
    h("p", { className: "help" }, `mean ${number(found.mean)}, standard deviation ${number(found.deviation)}, ${((100 * found.zeros) / found.looked_at).toFixed(1)} % zeros${found.not_finite ? `, ${found.not_finite} not finite` : ""}`)];
}

function attributes(node) {
  const rows = Object.entries(node.attributes);
  const left = Object.entries(node.defaults).filter(([name]) => !(name in node.attributes));
  if (!rows.length && !left.length) return [];
  const row = (name, text, quiet) => h("tr", { className: quiet ? "quiet" : "" }, h("th", { scope: "row" }, name), h("td", {}, text));
  return [h("h3", {}, "Attributes"), h("table", { className: "attributes" }, h("tbody", {},
    rows.map(([name, text]) => row(name, text, false)), left.map(([name, text]) => row(name, `${text} (default)`, true))))];
}

function statistics(page, view, found) {
  if (!found) return [];
  return [h("h3", {}, "In the last run"), Object.entries(found).map(([name, each]) => h("div", { className: "statistics" },
    h("span", { className: "name" }, name), " ", h("code", {}, each.type), each.min === undefined ? "" :
      ` from ${number(each.min)} to ${number(each.max)}, mean ${number(each.mean)}, standard deviation ${number(each.deviation)}`,
    each.not_finite ? h("strong", {}, ` ${each.not_finite} not finite`) : "", downloads(page, view, name)))];
}

// A value as a file: it is computed again, with the inputs of the last run, or random ones.
function downloads(page, view, name) {
  const said = h("span", { className: "help", role: "status" });
  const file = (format) => h("button", { type: "button", className: "link", "aria-label": `${name} as ${format}`, onclick: async () => {
    said.textContent = "Computing";
    const { options = {}, feeds } = page.ran || {};
    try {
      await compute({ task: "compute", model: view.model.id, feeds, options: { ...options, value: name, format } });
      said.textContent = "";
    } catch (error) { said.textContent = error.what; announce(error.what); }
  } }, format);
  return h("p", { className: "downloads" }, file(".npy"), file(".csv"), said);
}
