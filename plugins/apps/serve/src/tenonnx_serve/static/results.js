// What was compared, as tables.

import { h, number, table } from "./dom.js";

export function verdict(passed) {
  if (passed === null || passed === undefined) return h("p", { className: "verdict unknown" }, "Not compared");
  return h("p", { className: `verdict ${passed ? "passed" : "failed"}` }, passed ? "Passed ✓" : "Failed ✗");
}

export function largest(found) {
  const outputs = found.outputs.filter((each) => each.absolute !== null);
  if (!outputs.length) return "";
  const worst = outputs.reduce((a, b) => (a.absolute >= b.absolute ? a : b));
  return `Largest difference ${number(worst.absolute)}`;
}

export function differences(found) {
  if (!found.outputs.length) return [];
  const rows = found.outputs.map((each) => [
    each.name, each.run ? `${each.backend}, ${each.run}` : each.backend, number(each.absolute), each.relative === null ? "" : number(each.relative),
    each.equal ? `✓ ${each.grade || ""}` : `✗ ${each.reason || "differs"}`,
  ]);
  return [table(["Output", "Backend", "Absolute", "Relative", "Result"], rows, "Largest difference of each output")];
}

export function remarks(found) {
  const said = [
    ...found.states.filter((each) => each.state === "not verified").map((each) => `${each.name} was not compared: ${each.reason}`),
    ...Object.entries(found.never_ran).map(([name, why]) => `${name} never ran: ${why}`),
    ...found.problems, ...found.notes,
    ...found.default_session.filter((each) => !each.equal).map((each) =>
      `Not the same in a plain session of ${each.backend}: ${each.reason}${each.helps ? `; ${each.helps} helps` : ""}`),
  ];
  return said.length ? [h("ul", { className: "remarks" }, said.map((text) => h("li", {}, text)))] : [];
}
