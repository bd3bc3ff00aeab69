// Colors of boxes: by what they cost, and by what became of them.

import { h } from "./dom.js";

// The more a node costs, the darker; by logarithm, as costs span many powers of ten.
export function heat(costs, which, dark) {
  const numbers = Object.values(costs).map((each) => each[which]).filter((n) => n > 0);
  const most = Math.log(Math.max(2, ...[numbers.reduce((a, b) => Math.max(a, b), 2)]));
  const least = Math.log(numbers.reduce((a, b) => Math.min(a, b), Infinity) || 1);
  const tints = new Map();
  for (const [key, each] of Object.entries(costs)) {
    const n = each[which];
    const share = n > 0 ? (Math.log(n) - least) / Math.max(most - least, 1e-9) : 0;
    const light = dark ? 22 + 36 * share : 96 - 48 * share;
    tints.set(key, { fill: n > 0 ? `hsl(18 ${30 + 60 * share}% ${light}%)` : dark ? "#2a2d33" : "#f2f2f2", text: dark || light < 60 ? "#ffffff" : "#1c2330" });
  }
  return tints;
}

// What the colors of costs stand for, with the total.
export function legend(costs, which, dark) {
  const numbers = Object.entries(costs).filter(([key, each]) => key.startsWith("n") && each[which] > 0).map(([, each]) => each[which]);
  const total = numbers.reduce((sum, each) => sum + each, 0);
  const shown = Object.values(costs).map((each) => each[which]).filter((each) => each > 0);
  const least = shown.reduce((a, b) => Math.min(a, b), Infinity), most = shown.reduce((a, b) => Math.max(a, b), 0);
  const unit = which ? "bytes" : "multiplications";
  if (!shown.length) return [h("p", {}, `No ${unit}`)];
  const steps = [...new Set([0, 1, 2, 3, 4].map((k) => Math.round(least * (most / least) ** (k / 4))))];
  const tints = heat(Object.fromEntries(steps.map((each) => [each, [each, each]])), 0, dark);
  return [h("p", {}, h("strong", {}, short(total)), ` ${unit} in total`),
    h("ul", { className: "scale", "aria-label": `Colors by ${unit}` }, steps.map((each) => {
      const { fill, text } = tints.get(String(each));
      const row = h("li", {}, short(each));
      Object.assign(row.style, { background: fill, color: text });
      return row;
    }))];
}

const short = (number) => number.toLocaleString("en", { notation: "compact", maximumSignificantDigits: 3 });

export const FATES = {
  equal: { name: "equal", colors: ["#c9d1dc", "#5b6675"] },
  attributes: { name: "with changed attributes", colors: ["#fff2c2", "#8a6d00"] },
  weights: { name: "with changed weights", colors: ["#d9d4fb", "#5a45c0"] },
  changed: { name: "changed otherwise", colors: ["#ffd9a8", "#a85a00"] },
  added: { name: "added", colors: ["#c7ecd0", "#1d7a3a"] },
  removed: { name: "removed", colors: ["#f9cdd0", "#b3262f"] },
};

export function fate_tints(fates) {
  const tints = new Map();
  for (const [key, fate] of Object.entries(fates)) tints.set(key, { fill: FATES[fate].colors[0], border: FATES[fate].colors[1], text: "#1c2330" });
  return tints;
}
