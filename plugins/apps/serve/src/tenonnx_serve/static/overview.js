// What is known of a model as a whole: faults, interface, ops, functions, documentation and metadata.

import { documentation, h, plural, problem } from "./dom.js";
import { search } from "./search.js";

const FAULTS = 50, OPS = 30;

export function overview(page, view) {
  const { about } = page;
  const link = (text, key) => h("button", { type: "button", className: "link", onclick: () => page.reveal(key) }, text);
  const values = (title, list, kind) => [h("h3", {}, title), h("ul", { className: "values" }, list.map((each, place) =>
    h("li", {}, link(each.name || "(no name)", `${kind}${place}`), " ", h("code", {}, each.type))))];
  const ops = about.ops.slice(0, OPS).map((each) => h("li", { className: each.known ? "" : "missing" },
    h("button", { type: "button", className: "link name", onclick: () => search(page, `op:${each.op}`) }, each.op), ` ${each.count.toLocaleString("en")}`, each.known ? "" : h("span", { className: "help" }, each.missing)));
  const metadata = Object.entries(about.metadata);
  const one = view.function === null ? null : about.functions[view.function];
  if (one) {
    return [h("h2", {}, one.op), h("p", { className: "help" }, `A function of the model, ${plural(one.nodes, "node")}`),
      one.doc && documentation(one.doc)];
  }
  return [
    about.broken && problem(about.broken),
    about.missing && page.missing_data(),
    about.faults.length > 0 && [h("h2", {}, plural(about.faults.length, "fault")),
      h("ul", { className: "values faults" }, about.faults.slice(0, FAULTS).map((each) => h("li", {}, link(each.label, each.key), " ", each.what)))],
    h("h2", {}, about.name || "Model"),
    h("p", { className: "help" }, `${plural(about.index.length, "node")}, ${plural(about.weights.count, "weight")}, opset ${Object.entries(about.opsets).map(([domain, version]) => `${domain} ${version}`).join(", ")}`),
    about.producer && h("p", { className: "help" }, `Made by ${about.producer}`),
    about.doc && documentation(about.doc),
    values("Inputs", about.inputs, "i"), values("Outputs", about.outputs, "o"),
    h("h3", {}, "Ops"), h("ul", { className: "values ops" }, ops),
    about.functions.length > 0 && [h("h3", {}, "Functions"), h("ul", { className: "values" }, about.functions.map((each, number) =>
      h("li", {}, link(each.op, `f${number}`), ` ${plural(each.nodes, "node")}`, each.doc && h("span", { className: "help" }, ` ${each.doc}`))))],
    metadata.length > 0 && [h("h3", {}, "Metadata"), h("dl", { className: "metadata" }, metadata.map(([name, text]) =>
      h("div", {}, h("dt", {}, name), h("dd", {}, text))))],
    about.problems.length > 0 && [h("h3", {}, "Problems"), h("ul", { className: "remarks" }, about.problems.map((text) => h("li", {}, text)))],
  ];
}
