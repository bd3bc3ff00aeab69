// What is known of one box: op, types, attributes, documentation, weights.

import { look } from "./api.js";
import { fill, h, megabytes, number, problem } from "./dom.js";

export async function show_node(pane, page, view, key) {
  if (key.includes("g:")) { fill(pane, group(view, key)); return; }
  let node;
  try {
    node = await look(view.model.id, "node", { key });
  } catch (error) { fill(pane, problem(error)); return; }
  if (view.drawing.selected !== key) return;
  if (node.value) {
    fill(pane, h("h2", {}, node.title), h("p", {}, h("code", {}, node.value.type)));
    return;
  }
  const box = view.drawing.places.get(key);
  fill(pane,
    h("h2", {}, node.op, h("span", { className: "help" }, ` version ${node.version}`)),
    node.name && h("p", { className: "name" }, node.name),
    box && box[8] > 0 && h("p", {}, h("button", { type: "button", onclick: () => view.toggle(key) },
      box[8] === 2 ? "Close" : node.subgraphs.length ? "Open its subgraphs" : "Expand: show its definition")),
    statistics(page.statistics?.[key]),
    values("Inputs", node.inputs, view, key), values("Outputs", node.outputs, view, key),
    attributes(node),
    node.documentation && [h("h3", {}, "Documentation"), h("p", { className: "documentation" }, node.documentation)],
    node.package && h("p", { className: "help" }, `Provided by ${node.package}`));
}

function group(view, key) {
  const box = view.drawing.places.get(key);
  return [h("h2", {}, box ? box[6] : key), h("p", { className: "help" }, key.slice(key.lastIndexOf("g:") + 2)),
    h("p", {}, h("button", { type: "button", onclick: () => view.toggle(key) }, box && box[8] === 2 ? "Close" : "Open"))];
}

function values(title, list, view, key) {
  if (!list.length) return [];
  return [h("h3", {}, title), h("ul", { className: "values" }, list.map((each) => h("li", {},
    each.called && h("span", { className: "called" }, each.called), " ",
    h("span", { className: "name" }, each.name), " ", h("code", {}, each.type),
    each.constant && h("span", { className: "help" }, ` ${megabytes(each.bytes)}`),
    each.contents && h("pre", { tabIndex: 0 }, each.contents),
    each.constant && each.bytes > 64 && weights(view, key, each))))];
}

function weights(view, key, value) {
  const place = h("div", {});
  const open = h("button", { type: "button", className: "link", onclick: async () => {
    try { fill(place, histogram(await look(view.model.id, "histogram", { key, place: value.place }), value.name)); }
    catch (error) { fill(place, problem(error)); }
  } }, "Histogram");
  place.append(open);
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

function statistics(found) {
  if (!found) return [];
  return [h("h3", {}, "In the last run"), Object.entries(found).map(([name, each]) => h("p", { className: "statistics" },
    h("span", { className: "name" }, name), " ", h("code", {}, each.type), each.min === undefined ? "" :
      ` from ${number(each.min)} to ${number(each.max)}, mean ${number(each.mean)}, standard deviation ${number(each.deviation)}`,
    each.not_finite ? h("strong", {}, ` ${each.not_finite} not finite`) : ""))];
}
