// The page Compare: two drawings side by side, in the colours of what became of each node, and numbers.

import { look } from "./api.js";
import { $, fill, h, plural, problem, table } from "./dom.js";
import { resume, start } from "./jobs.js";
import { Look } from "./look.js";
import { differences, largest, remarks, verdict } from "./results.js";
import { FATES, fate_tints } from "./tints.js";

export function show_compare(page) {
  const place = h("section", { className: "card result", "aria-label": "Result" });
  const sides = h("div", { className: "sides" });
  const others = page.models.filter((each) => each.id !== page.model.id);
  const other = h("select", { id: "other" }, h("option", { value: "" }, "choose a model"),
    others.map((each) => h("option", { value: each.id }, each.name)),
    page.files.filter((file) => !page.models.some((each) => each.name === file)).map((file) => h("option", { value: `/${file}` }, file)));
  const file = h("input", { id: "other-file", type: "file", accept: ".onnx,.safetensors", onchange: async () => {
    if (!file.files[0]) return;
    try { go((await page.send(file.files[0])).id); } catch (error) { fill(place, problem(error)); }
  } });
  other.onchange = async () => {
    if (!other.value) return;
    try { go(other.value.startsWith("/") ? (await page.open_file(other.value.slice(1))).id : other.value); }
    catch (error) { fill(place, problem(error)); }
  };
  const go = (id) => {
    sessionStorage.setItem(`tenonnx-other-${page.model.id}`, id);
    start({ task: "compare", model: page.model.id, other: id }, place, shown);
  };
  const shown = (job) => {
    fill(place, result(job.result));
    draw(page, sessionStorage.getItem(`tenonnx-other-${page.model.id}`), job.result, sides);
  };
  fill($("view"), h("div", { className: "comparing" },
    h("form", { className: "card", "aria-label": "Compare" }, h("h2", {}, `Compare ${page.model.name} with`),
      h("div", { className: "row" },
        h("div", { className: "field" }, h("label", { htmlFor: "other" }, "A model"), other),
        h("div", { className: "field" }, h("label", { htmlFor: "other-file" }, "or a file"), file))),
    place, sides));
  fill(place, h("p", { className: "empty" }, "Nodes that are equal, changed, added and removed get colours; then outputs are compared."));
  resume("compare", page.model.id, place, shown);
}

function result(found) {
  const rows = Object.entries(found.structure).flatMap(([kind, each]) => each.map((row) => [kind, row.name, row.first, row.second]));
  return [
    found.error ? [h("p", { className: "verdict unknown" }, "Not compared"), problem(found.error)]
      : [verdict(found.passed), h("p", { className: "largest" }, largest(found.verification))],
    h("ul", { className: "legend" }, Object.entries(FATES).map(([fate]) => {
      const count = Object.values(found.fates[fate === "removed" ? 0 : 1]).filter((each) => each === fate).length;
      return h("li", { className: fate }, `${count.toLocaleString("en")} ${fate}`);
    })),
    found.diverging && h("p", {}, h("strong", {}, "The first node that diverges: "), found.diverging.node),
    found.verification && [differences(found.verification), remarks(found.verification)],
    rows.length > 0 && h("details", {}, h("summary", {}, plural(rows.length, "difference") + " of structure"),
      table(["Kind", "Name", "First", "Second"], rows, "Differences of structure")),
  ];
}

async function draw(page, other, found, sides) {
  const models = [page.model, page.models.find((each) => each.id === other)].filter(Boolean);
  const views = models.map((model, k) => new Look(page, model, `Drawing of the ${k ? "second" : "first"} model, ${model.name}`));
  fill(sides, views.map((view, k) => h("figure", {}, h("figcaption", {}, models[k].name), view.element)));
  for (const [k, view] of views.entries()) {
    try {
      if (k) await look(view.model.id, "open");
      await view.load();
      view.drawing.tints = fate_tints(found.fates[k]);
      view.drawing.redraw();
      if (k && found.diverging?.key) await view.reveal(found.diverging.key);
    } catch (error) { view.element.replaceWith(problem(error)); }
  }
}
