// One node of two models, side by side.

import { look } from "./api.js";
import { fill, h, problem, table } from "./dom.js";
import { FATES } from "./tints.js";

let asked = 0;

// Shows the nodes of `keys`, one of each model or null, and what became of them.
export async function show_both(pane, models, keys, fate) {
  const mine = ++asked;
  pane.hidden = !keys.some((key) => key && !key.includes("g:"));
  if (pane.hidden) return;
  let nodes;
  try {
    nodes = await Promise.all(keys.map((key, k) => (key && models[k] ? look(models[k].id, "node", { key }) : null)));
  } catch (error) { fill(pane, problem(error)); return; }
  if (mine !== asked) return;
  const sides = nodes.map(facts);
  const names = [...new Set(sides.flatMap((side) => [...side.keys()]))];
  const rows = names.map((name) => {
    const texts = sides.map((side) => side.get(name) ?? "");
    return texts[0] === texts[1] ? [name, ...texts] : [h("strong", {}, `${name} ≠`), ...texts.map((text) => h("strong", {}, text))];
  });
  fill(pane, h("h2", {}, (nodes[0] || nodes[1]).title, fate && h("span", { className: "help" }, ` ${FATES[fate].name}`)),
    table(["What", ...models.map((model) => model.name)], rows, "One node of both models"));
}

// What is compared of a node, by name.
function facts(node) {
  if (!node) return new Map();
  if (node.value) return new Map([["Name", node.title], ["Type", node.value.type]]);
  const values = (kind, list) => list.map((each, place) => [`${kind} ${each.called || place + 1}`,
    `${each.constant ? "" : `${each.name} `}${each.type}${each.contents ? ` ${each.contents}` : ""}`.trim()]);
  return new Map([["Name", node.name], ["Op", node.op], ["Version", String(node.version)],
    ...Object.entries(node.attributes).map(([name, text]) => [`Attribute ${name}`, text]),
    ...values("Input", node.inputs), ...values("Output", node.outputs)]);
}
