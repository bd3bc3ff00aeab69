// Attributions as pictures: a heat map on an image, bars of a table, colored tokens of a text.

import { h, number, table, unique } from "./dom.js";

// What is for the output is red, what is against it is blue, and the largest in a row is opaque.
const FOR = [200, 38, 50], AGAINST = [31, 95, 196];
const HEAT_WIDTH = 280;

export function attributions(found, vocabulary) {
  return found.map((each) => {
    const row = each.rows.length > 1 ? row_field(each.rows.length) : null;
    const place = h("div", {});
    const show = () => place.replaceChildren(DRAWN[each.kind](each.rows[row ? row.value() : 0], each, vocabulary));
    if (each.rows.length) show();
    else place.append(h("p", { className: "empty" }, "There is no picture for attributions of this shape. The download has their numbers."));
    if (row) row.control.onchange = show;
    return h("figure", { className: "attribution", "aria-label": each.name },
      h("figcaption", {}, h("h3", {}, `${each.name}, ${each.shape.join("×")}`)), row && row.shown, place);
  });
}

function row_field(count) {
  const id = unique("row");
  const control = h("select", { id }, Array.from({ length: count }, (_, k) => h("option", { value: k }, String(k))));
  return { control, value: () => Number(control.value), shown: h("div", { className: "field" }, h("label", { htmlFor: id }, "Row"), control) };
}

const largest = (numbers) => numbers.reduce((most, each) => Math.max(most, Math.abs(each)), 0) || 1;

const color = (part, most) => [...(part >= 0 ? FOR : AGAINST), Math.min(1, Math.abs(part) / most)];

const DRAWN = { image: heat_map, table: bars, tokens: colored };

// The image in gray, or in its colors, below colors of the attribution: both as large as can be seen.
function heat_map({ heat, picture }) {
  const most = largest(heat.flat());
  const below = picture && pixels(picture.length, picture[0].length, (y, x) => {
    const parts = picture[y][x];
    return [...(parts.length === 3 ? parts : [parts[0], parts[0], parts[0]]), 255];
  });
  const above = pixels(heat.length, heat[0].length, (y, x) => {
    const [r, g, b, share] = color(heat[y][x], most);
    return [r, g, b, 255 * (picture ? 0.85 : 1) * share];
  });
  const side = below || above;
  const canvas = h("canvas", { className: "heat", role: "img", "aria-label": "Heat map",
    width: HEAT_WIDTH, height: Math.max(1, Math.round(HEAT_WIDTH * side.height / side.width)) });
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = false;
  if (below) context.drawImage(below, 0, 0, canvas.width, canvas.height);
  context.imageSmoothingEnabled = Boolean(picture) && heat.length !== picture.length;
  context.drawImage(above, 0, 0, canvas.width, canvas.height);
  return h("div", {}, canvas, legend(most));
}

function pixels(rows, columns, at) {
  const canvas = new OffscreenCanvas(columns, rows), image = new ImageData(columns, rows);
  for (let y = 0; y < rows; y++) for (let x = 0; x < columns; x++) image.data.set(at(y, x), 4 * (y * columns + x));
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

function legend(most) {
  return h("p", { className: "help" }, `Red is for the output, blue against it; the strongest color is ${number(most)}.`);
}

function bars({ features, values, parts }) {
  const several = Array.isArray(parts[0]);
  const most = largest(parts.flat());
  const rows = features.map((feature, k) => [
    String(feature), values ? number(values[k]) : "", ...(several ? parts[k] : [parts[k]]).flatMap((part) => [number(part), bar(part, most)]),
  ]);
  const outputs = several ? parts[0].map((_, k) => [`Output ${k}`, `Bar ${k}`]).flat() : ["Attribution", "Bar"];
  return table(["Feature", "Value", ...outputs], rows, "Attribution of each feature");
}

// A bar from the middle: to the right for the output, to the left against it.
function bar(part, most) {
  const filled = h("span", { className: part >= 0 ? "for" : "against" });
  filled.style.width = `${50 * Math.abs(part) / most}%`;
  return h("span", { className: "bar", "aria-hidden": "true" }, filled);
}

function colored({ tokens, parts }, each, vocabulary) {
  const most = largest(parts);
  const shown = tokens.map((token, k) => {
    const [r, g, b, share] = color(parts[k], most);
    const element = h("span", { className: "token", title: number(parts[k]) }, text_of(token, vocabulary), h("span", { className: "unseen" }, ` ${number(parts[k])} `));
    element.style.backgroundColor = `rgb(${r} ${g} ${b} / ${0.6 * share})`;
    return element;
  });
  return h("div", {}, h("p", { className: "tokens" }, shown), legend(most),
    !each.numbered && h("p", { className: "help" }, "No input has the token numbers, so that positions are shown."));
}

const text_of = (token, vocabulary) => (typeof token === "number" ? vocabulary?.get(token) ?? String(token) : token);

// The texts of token numbers, of vocab.txt, vocab.json or tokenizer.json.
export async function read_vocabulary(file) {
  const text = await file.text();
  if (!/\.json$/i.test(file.name)) return new Map(text.split(/\r?\n/).map((token, k) => [k, token]));
  let found;
  try { found = JSON.parse(text); } catch { throw { what: `${file.name} is not JSON.` }; }
  const listed = found.model?.vocab ?? found;
  const pairs = Array.isArray(listed) ? listed.map((each, k) => [k, Array.isArray(each) ? each[0] : each])
    : Object.entries(listed).map(([token, k]) => [k, token]);
  const known = pairs.filter(([k, token]) => Number.isInteger(k) && typeof token === "string");
  if (!known.length) throw { what: `${file.name} has no tokens with their numbers.` };
  return new Map([...known, ...(found.added_tokens ?? []).map((each) => [each.id, each.content])]);
}
