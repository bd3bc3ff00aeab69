// Colours of boxes: by what they cost, and by what became of them.

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

export const FATES = {
  equal: ["#c9d1dc", "#5b6675"], changed: ["#ffe3a3", "#a86a00"], added: ["#c7ecd0", "#1d7a3a"], removed: ["#f9cdd0", "#b3262f"],
};

export function fate_tints(fates) {
  const tints = new Map();
  for (const [key, fate] of Object.entries(fates)) tints.set(key, { fill: FATES[fate][0], border: FATES[fate][1], text: "#1c2330" });
  return tints;
}
