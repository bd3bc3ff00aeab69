// What is drawn as a file: SVG and PNG.

const NAMESPACE = "http://www.w3.org/2000/svg";
const SHARP = 2; // pixels of a PNG for one of the drawing
const MOST_PIXELS = 1e8, LONGEST = 16000; // of a canvas in browsers

// The part of a canvas context that a drawing uses; it makes elements of SVG.
class Pen {
  constructor(width, height) {
    this.root = document.implementation.createDocument(NAMESPACE, "svg").documentElement;
    for (const [name, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}` })) this.root.setAttribute(name, value);
    Object.assign(this, { way: "", dash: [], globalAlpha: 1, fillStyle: "", strokeStyle: "", lineWidth: 1, font: "", textAlign: "left" });
    this.measure = document.createElement("canvas").getContext("2d");
  }

  add(name, attributes, text) {
    const element = this.root.ownerDocument.createElementNS(NAMESPACE, name);
    for (const [each, value] of Object.entries(attributes)) element.setAttribute(each, value);
    if (text !== undefined) element.textContent = text;
    this.root.append(element);
  }

  beginPath() { this.way = ""; }
  moveTo(x, y) { this.way += `M${round(x)} ${round(y)}`; }
  lineTo(x, y) { this.way += `L${round(x)} ${round(y)}`; }
  bezierCurveTo(...points) { this.way += `C${points.map(round).join(" ")}`; }
  roundRect(x, y, w, h, r) {
    this.way += `M${round(x + r)} ${round(y)}h${round(w - 2 * r)}a${r} ${r} 0 0 1 ${r} ${r}v${round(h - 2 * r)}a${r} ${r} 0 0 1 ${-r} ${r}`
      + `h${round(2 * r - w)}a${r} ${r} 0 0 1 ${-r} ${-r}v${round(2 * r - h)}a${r} ${r} 0 0 1 ${r} ${-r}z`;
  }

  setLineDash(dash) { this.dash = dash; }
  fill() { if (this.way) this.add("path", { d: this.way, fill: this.fillStyle, "fill-opacity": this.globalAlpha }); }
  stroke() {
    if (!this.way) return;
    const dash = this.dash.length ? { "stroke-dasharray": this.dash.join(" ") } : {};
    this.add("path", { d: this.way, fill: "none", stroke: this.strokeStyle, "stroke-width": this.lineWidth, ...dash });
  }

  fillRect(x, y, width, height) { this.add("rect", { x: round(x), y: round(y), width: round(width), height: round(height), fill: this.fillStyle }); }
  measureText(text) {
    this.measure.font = this.font;
    return this.measure.measureText(text);
  }

  fillText(text, x, y, most = Infinity) {
    const [, weight, size, family] = this.font.match(/^(\d+ )?([\d.]+)px (.*)$/);
    const anchor = this.textAlign === "center" ? "middle" : "start";
    const squeezed = this.measureText(text).width > most ? { textLength: round(most), lengthAdjust: "spacingAndGlyphs" } : {};
    this.add("text", { x: round(x), y: round(y), fill: this.fillStyle, "font-size": size, "font-family": family,
      "font-weight": (weight || "400").trim(), "text-anchor": anchor, ...squeezed }, text);
  }
}

const round = (number) => Math.round(number * 10) / 10;

// The whole drawing as SVG, in the colors that the page has now, with its ground.
export function svg(drawing) {
  const pen = new Pen(drawing.data.width, drawing.data.height);
  drawing.whole(pen);
  return new Blob([new XMLSerializer().serializeToString(pen.root)], { type: "image/svg+xml" });
}

// The same as PNG, as sharp as browsers allow.
export function png(drawing) {
  const { width, height } = drawing.data;
  const scale = Math.min(SHARP, LONGEST / width, LONGEST / height, Math.sqrt(MOST_PIXELS / width / height));
  const canvas = document.createElement("canvas");
  Object.assign(canvas, { width: Math.ceil(width * scale), height: Math.ceil(height * scale) });
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  drawing.whole(context);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

// Gives a file to the browser's downloads.
export function save(blob, name) {
  const link = document.createElement("a");
  Object.assign(link, { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}
