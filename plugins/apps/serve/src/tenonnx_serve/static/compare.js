// The page Compare: two drawings side by side, in the colors of what became of each node; structure first, then numbers.

import { $, announce, fill, h, plural, problem, table } from "./dom.js";
import { resume, start } from "./jobs.js";
import { Look } from "./look.js";
import { show_both } from "./both.js";
import { differences, largest, remarks } from "./results.js";
import { FATES, fate_tints } from "./tints.js";

export function show_compare(page) {
  const { model } = page;
  const place = h("section", { className: "card result", "aria-label": "Result" });
  const sides = h("div", { className: "sides" });
  const pane = h("section", { className: "card both", "aria-label": "Both sides", hidden: true });
  const others = page.models.filter((each) => each.id !== model.id);
  const other = h("select", { id: "other" }, h("option", { value: "" }, "choose a model"),
    others.map((each) => h("option", { value: each.id }, each.name)),
    page.files.filter((file) => !page.models.some((each) => each.name === file)).map((file) => h("option", { value: `/${file}` }, file)));
  const file = h("input", { id: "other-file", type: "file", accept: page.form.suffixes.join(","), onchange: async () => {
    if (!file.files[0]) return;
    try { go(await page.send(file.files[0])); } catch (error) { fill(place, problem(error)); }
  } });
  // A choice by the keyboard passes others on its way.
  other.onchange = async () => {
    const { value } = other;
    if (!value) return;
    try {
      const chosen = value.startsWith("/") ? await page.open_file(value.slice(1)) : others.find(({ id }) => id === value);
      if (value === other.value && place.isConnected) go(chosen);
    } catch (error) { fill(place, problem(error)); }
  };
  const question = () => ({ task: "compare", model: model.id, other: page.other.id });
  const go = (chosen) => {
    page.compare_with(chosen, place.hasAttribute("aria-busy"));
    fill(sides);
    pane.hidden = true;
    start(question(), place, shown);
  };
  // The comparison that the address tells: its last job, or else a new one.
  const again = async () => {
    const known = await page.known(page.other);
    if (!place.isConnected) return;
    if (!known) { page.compare_with(null, true); return; }
    page.compare_with(known, true);
    other.value = [...other.options].find((each) => each.text === known.name)?.value ?? "";
    if (!await resume(question(), place, shown) && place.isConnected) start(question(), place, shown);
  };
  const shown = (job) => {
    if (!place.isConnected) return;
    const models = [model, page.other];
    const drawn = draw(page, models, job.result, sides, pane);
    fill(place, result(job.result, (key) => drawn.then((views) => views[1]?.reveal(key)).catch((error) => announce(error.what))));
  };
  fill($("view"), h("div", { className: "comparing" },
    h("form", { className: "card", "aria-label": "Compare" }, h("h2", {}, `Compare ${model.name} with`),
      h("div", { className: "row" },
        h("div", { className: "field" }, h("label", { htmlFor: "other" }, "A model"), other),
        h("div", { className: "field" }, h("label", { htmlFor: "other-file" }, "or a file"), file))),
    place, sides, pane));
  fill(place, h("p", { className: "empty" }, "Nodes that are equal, changed, added and removed get colors; then outputs are compared."));
  if (page.other) again();
}

function result(found, reveal) {
  const rows = Object.entries(found.structure).flatMap(([kind, each]) => each.map((row) => [kind, row.name, row.first, row.second]));
  const count = (fate) => Object.values(found.fates[fate === "removed" ? 0 : 1]).filter((each) => each === fate).length;
  const same = ["attributes", "weights", "changed", "added", "removed"].every((fate) => !count(fate)) && !rows.length;
  return [
    h("h3", {}, "Structure"),
    h("p", { className: "largest" }, same ? "The same nodes, attributes and weights" : "The models differ"),
    h("ul", { className: "legend" }, Object.entries(FATES).map(([fate, { name }]) => h("li", { className: fate }, `${count(fate).toLocaleString("en")} ${name}`))),
    rows.length > 0 && h("details", {}, h("summary", {}, plural(rows.length, "difference") + " of structure"),
      table(["Kind", "Name", "First", "Second"], rows, "Differences of structure")),
    h("h3", {}, "Numbers"),
    found.error ? [h("p", { className: "verdict unknown" }, "Not compared"), problem(found.error)]
      : [numbers(found), h("p", { className: "largest" }, largest(found.verification))],
    found.diverging && h("p", {}, h("strong", {}, "The first node that diverges: "), found.diverging.key
      ? h("button", { type: "button", className: "link", onclick: () => reveal(found.diverging.key) }, found.diverging.node) : found.diverging.node),
    found.verification && [differences(found.verification), remarks(found.verification)],
  ];
}

// Numbers say something of the inputs that were tried alone.
function numbers({ passed }) {
  if (passed === null || passed === undefined) return h("p", { className: "verdict unknown" }, "Not compared");
  return h("p", { className: `verdict ${passed ? "passed" : "failed"}` },
    passed ? "Within tolerance on one random input ✓" : "Beyond tolerance on one random input ✗");
}

// Both drawings: one follows the other, and the nodes that are chosen are shown side by side.
async function draw(page, models, found, sides, pane) {
  const pairs = [found.pairs, Object.fromEntries(Object.entries(found.pairs).map(([one, two]) => [two, one]))];
  const follow = (k) => {
    const [from, to] = [views[k].drawing, views[1 - k]?.drawing];
    if (!to) return;
    const at = `${from.x} ${from.y} ${from.scale} ${from.data.boxes.length}`;
    if (from.followed === at) return; // it moved behind the other
    from.followed = at;
    const box = from.middle((key) => to.places.has(pairs[k][key]));
    if (!box) return;
    const partner = to.places.get(pairs[k][box[0]]);
    to.place(partner[2] + partner[4] / 2 + from.x - box[2] - box[4] / 2, partner[3] + from.y - box[3], from.scale);
    to.followed = `${to.x} ${to.y} ${to.scale} ${to.data.boxes.length}`;
  };
  const chosen = (k, key) => {
    const partner = pairs[k][key] ?? null, keys = k ? [partner, key] : [key, partner];
    views[1 - k]?.drawing.select(partner, { quiet: true });
    show_both(pane, models, keys, key && found.fates[k][key]);
  };
  const views = models.map((model, k) => new Look(page, model, `Drawing of the ${k ? "second" : "first"} model, ${model.name}`,
    { chosen: (key) => chosen(k, key), moved: () => follow(k), is_read: k === 0 }));
  fill(sides, views.map((view, k) => h("figure", {}, h("figcaption", {}, models[k].name), view.element)));
  await Promise.all(views.map(async (view, k) => {
    try {
      await view.load();
      view.drawing.tints = fate_tints(found.fates[k]);
      view.drawing.redraw();
    } catch (error) { view.element.replaceWith(problem(error)); }
  }));
  if (views[1] && found.diverging?.key) await views[1].reveal(found.diverging.key).catch((error) => announce(error.what));
  return views;
}
