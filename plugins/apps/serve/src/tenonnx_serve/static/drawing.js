// A drawing on a canvas: what is off screen is not drawn, and what would be too small to see is drawn in less detail.

const FONT = "system-ui, sans-serif";
const [KEY, KIND, X, Y, W, H, TITLE, FACTS, OPENS] = [0, 1, 2, 3, 4, 5, 6, 7, 8];
const FAR = 0.22, VERY_FAR = 0.06, NEAREST = 3;
const MARK = 14; // the size of the sign that opens
const NEAR = 6; // pixels around a line where a pointer chooses it
const STEPS = 24; // points of a curve that are measured

export class Drawing {
  // `colors` are pairs of fill and border by kind, on light and on dark ground; `handlers` are chosen, toggled, said.
  constructor(canvas, colors, handlers) {
    this.canvas = canvas;
    this.colors = colors;
    this.handlers = handlers;
    this.data = { boxes: [], lines: [], titles: [], faults: {}, width: 0, height: 0 };
    this.scale = 1;
    this.top = 12; // pixels above the drawing, which tools may cover
    this.x = this.y = 0; // of the drawing, at the corner of the canvas
    this.selected = null; // the key of a box
    this.value = null; // the key of the value whose lines are chosen
    this.path = new Set(); // keys of boxes on a way that is shown
    this.back = []; // lines that close cycles, by the keys of their ends
    this.places = new Map(); // boxes by key
    this.tints = new Map(); // colors of boxes by key, over their own
    this.pending = false;
    new ResizeObserver(() => this.redraw()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.redraw());
    this.listen();
  }

  show(data) {
    this.data = data;
    this.around = data.boxes.filter((box) => box[OPENS] === 2);
    this.places = new Map(data.boxes.map((box) => [box[KEY], box]));
    this.spans = data.lines.map(([points]) => {
      let top = Infinity, bottom = -Infinity, left = Infinity, right = -Infinity;
      for (let k = 0; k < points.length; k += 2) {
        left = Math.min(left, points[k]); right = Math.max(right, points[k]);
        top = Math.min(top, points[k + 1]); bottom = Math.max(bottom, points[k + 1]);
      }
      return [left, top, right, bottom];
    });
    this.redraw();
  }

  // ----- the view -----

  fit() {
    const { width, height } = this.size();
    this.scale = Math.min(1, width / (this.data.width || 1), height / (this.data.height || 1));
    this.x = this.data.width / 2 - width / 2 / this.scale;
    this.y = this.data.height / 2 - height / 2 / this.scale;
    this.redraw();
  }

  begin() { // at the inputs, in full size
    const { width } = this.size();
    this.scale = 1;
    const inputs = this.data.boxes.filter((box) => box[KIND] === "input");
    const middle = inputs.length && this.data.width > width
      ? inputs.reduce((sum, box) => sum + box[X] + box[W] / 2, 0) / inputs.length : this.data.width / 2;
    this.x = middle - width / 2 / this.scale;
    this.y = -this.top / this.scale;
    this.redraw();
  }

  // Lets the drawing begin below so many pixels, which tools cover; what is seen moves with them.
  begin_below(top) {
    this.move(0, this.top - top);
    this.top = top;
  }

  zoom(factor, at = null) {
    const { width, height } = this.size();
    const [px, py] = at || [width / 2, height / 2];
    const scale = Math.min(NEAREST, Math.max(this.least(), this.scale * factor));
    this.x += px / this.scale - px / scale;
    this.y += py / this.scale - py / scale;
    this.scale = scale;
    this.redraw();
  }

  least() {
    const { width, height } = this.size();
    return Math.min(0.2, 0.9 * Math.min(width / (this.data.width || 1), height / (this.data.height || 1)));
  }

  move(dx, dy) {
    this.x += dx / this.scale;
    this.y += dy / this.scale;
    this.redraw();
  }

  // Shows the part of the drawing at a point, as `at` in another drawing does.
  place(x, y, scale) {
    Object.assign(this, { x, y, scale: Math.min(NEAREST, Math.max(1e-3, scale)) });
    this.redraw();
  }

  // The box that is nearest to the middle of the canvas.
  middle(accepts) {
    const { width, height } = this.size();
    const x = this.x + width / 2 / this.scale, y = this.y + height / 2 / this.scale;
    let best = null, least = Infinity;
    for (const box of this.data.boxes) {
      const far = Math.hypot(box[X] + box[W] / 2 - x, box[Y] + box[H] / 2 - y);
      if (far < least && accepts(box[KEY])) { least = far; best = box; }
    }
    return best;
  }

  size() {
    return { width: this.canvas.clientWidth, height: this.canvas.clientHeight };
  }

  // Chooses the lines of a value.
  select_value(key) {
    this.selected = null;
    this.value = key;
    this.redraw();
    this.handlers.line?.(key);
  }

  select(key, { center = false, quiet = false, step = false } = {}) {
    this.selected = key;
    this.value = null;
    const box = key === null ? null : this.places.get(key);
    if (box && center) {
      const { width, height } = this.size();
      if (this.scale < 0.5) this.scale = 0.8;
      this.x = box[X] + box[W] / 2 - width / 2 / this.scale;
      this.y = box[Y] + Math.min(box[H], 200) / 2 - height / 2 / this.scale;
    } else if (box) this.bring(box);
    this.redraw();
    if (!quiet) this.handlers.chosen(key, box, step);
  }

  bring(box) {
    const { width, height } = this.size();
    const [left, top] = [(box[X] - this.x) * this.scale, (box[Y] - this.y) * this.scale];
    const right = left + box[W] * this.scale, bottom = top + Math.min(box[H] * this.scale, height / 2);
    if (left < 0) this.x += (left - 20) / this.scale;
    else if (right > width) this.x += (right - width + 20) / this.scale;
    if (top < 0) this.y += (top - 20) / this.scale;
    else if (bottom > height) this.y += (bottom - height + 20) / this.scale;
  }

  // Keeps a box where it is on the screen while another drawing comes.
  hold(key) {
    const box = this.places && this.places.get(key);
    if (!box) return () => {};
    const at = [(box[X] - this.x) * this.scale, (box[Y] - this.y) * this.scale];
    return () => {
      const now = this.places.get(key);
      if (!now) return;
      this.x = now[X] - at[0] / this.scale;
      this.y = now[Y] - at[1] / this.scale;
      this.redraw();
    };
  }

  // ----- drawing -----

  redraw() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => { this.pending = false; this.draw(); this.handlers.moved?.(); });
  }

  theme() {
    const dark = getComputedStyle(this.canvas).getPropertyValue("color-scheme").includes("dark")
      && (document.documentElement.dataset.theme === "dark" || matchMedia("(prefers-color-scheme: dark)").matches)
      && document.documentElement.dataset.theme !== "light";
    return dark ? { at: 2, text: "#e8ebf0", quiet: "#aab3c2", line: "#727d90", strong: "#7fb2ff", paper: "#15181e", bad: "#ff9a9f", bad_paper: "#3a1a1d" }
      : { at: 0, text: "#1c2330", quiet: "#566072", line: "#8b95a5", strong: "#1f5fc4", paper: "#ffffff", bad: "#b3262f", bad_paper: "#fdeaea" };
  }

  draw() {
    const { width, height } = this.size();
    const density = window.devicePixelRatio || 1;
    if (this.canvas.width !== Math.round(width * density) || this.canvas.height !== Math.round(height * density)) {
      this.canvas.width = Math.round(width * density);
      this.canvas.height = Math.round(height * density);
    }
    const context = this.canvas.getContext("2d");
    context.setTransform(density, 0, 0, density, 0, 0);
    context.clearRect(0, 0, width, height);
    const s = density * this.scale;
    context.setTransform(s, 0, 0, s, -this.x * s, -this.y * s);
    this.paint(context, { left: this.x, top: this.y, right: this.x + width / this.scale, bottom: this.y + height / this.scale });
    this.handlers.drawn?.();
  }

  // Draws all of it at its size, on its ground, in the colors that the page has now.
  whole(context) {
    const { scale } = this, { width, height } = this.data;
    this.scale = 1;
    context.fillStyle = this.theme().paper;
    context.fillRect(0, 0, width, height);
    this.paint(context, { left: 0, top: 0, right: width, bottom: height });
    this.scale = scale;
  }

  paint(context, view) {
    const theme = this.theme();
    const seen = (box) => box[X] <= view.right && box[X] + box[W] >= view.left && box[Y] <= view.bottom && box[Y] + box[H] >= view.top;
    const boxes = this.data.boxes.filter(seen);
    for (const box of boxes) if (box[OPENS] === 2) this.box(context, box, theme, true);
    if (this.scale >= VERY_FAR) this.lines(context, view, theme);
    this.lines_back(context, theme);
    for (const box of boxes) if (box[OPENS] !== 2) this.box(context, box, theme, false);
    if (this.scale < FAR) return;
    context.font = `11px ${FONT}`;
    context.textAlign = "left";
    context.fillStyle = theme.quiet;
    for (const [x, y, text] of this.data.titles) if (x < view.right && y > view.top - 20 && y < view.bottom + 20) context.fillText(text, x, y);
  }

  lines_back(context, theme) {
    context.strokeStyle = theme.bad;
    context.lineWidth = 2;
    context.setLineDash([6, 4]);
    for (const [from, to] of this.back) {
      const a = this.places.get(from), b = this.places.get(to);
      if (!a || !b) continue;
      const x = a[X] + a[W] / 2, y = a[Y] + a[H], tx = b[X] + b[W] / 2, side = Math.max(4, Math.min(a[X], b[X]) - 60);
      context.beginPath();
      context.moveTo(x, y);
      context.bezierCurveTo(x, y + 50, side, y + 50, side, (y + b[Y]) / 2);
      context.bezierCurveTo(side, b[Y] - 50, tx, b[Y] - 50, tx, b[Y]);
      context.stroke();
    }
    context.setLineDash([]);
  }

  lines(context, view, theme) {
    const selected = this.selected && this.places.get(this.selected);
    const index = selected ? this.data.boxes.indexOf(selected) : -1;
    const strong = [];
    const far = this.scale < FAR;
    const boxes = this.data.boxes, on = (place) => place >= 0 && this.path.has(boxes[place][KEY]);
    context.strokeStyle = theme.line;
    context.lineWidth = far ? 0.8 / this.scale : 1.1;
    context.beginPath();
    const visible = [];
    this.data.lines.forEach((line, k) => {
      const [left, top, right, bottom] = this.spans[k];
      if (left > view.right || right < view.left || top > view.bottom || bottom < view.top) return;
      visible.push(line);
      if (index >= 0 && (line[3] === index || line[4] === index) || (this.value && line[5] === this.value) || (on(line[3]) && on(line[4]))) strong.push(line);
      else trace(context, line[0], far);
    });
    context.stroke();
    context.strokeStyle = theme.strong;
    context.lineWidth = far ? 2 / this.scale : 2.2;
    context.beginPath();
    for (const line of strong) trace(context, line[0], far);
    context.stroke();
    if (far) return;
    for (const line of visible) if (line[2]) arrow(context, line[0], strong.includes(line) ? theme.strong : theme.line);
    if (this.scale < 0.5) return;
    context.font = `10px ${FONT}`;
    context.textAlign = "left";
    context.fillStyle = theme.quiet;
    for (const [points, text] of visible) {
      if (text && points[1] > view.top - 20 && points[1] < view.bottom) context.fillText(text, points[0] + 5, points[1] + 12);
    }
  }

  box(context, box, theme, around) {
    const [fill, border] = this.colors[box[KIND]].slice(theme.at);
    const faulty = this.data.faults[box[KEY]] !== undefined;
    const tint = this.tints.get(box[KEY]) || (faulty ? { fill: theme.bad_paper, border: theme.bad } : undefined);
    const chosen = box[KEY] === this.selected || this.path.has(box[KEY]);
    context.fillStyle = tint ? tint.fill : fill;
    if (this.scale < FAR && !around) {
      const least = 1.2 / this.scale;
      context.fillStyle = tint ? tint.fill : border;
      context.fillRect(box[X], box[Y], Math.max(box[W], least), Math.max(box[H], least));
      if (chosen) {
        context.fillStyle = theme.strong;
        context.fillRect(box[X] - 4 / this.scale, box[Y] - 4 / this.scale, box[W] + 8 / this.scale, Math.max(box[H], least) + 8 / this.scale);
      }
      return;
    }
    context.strokeStyle = chosen ? theme.strong : tint && tint.border ? tint.border : border;
    context.lineWidth = chosen ? 3 : tint && tint.border ? 2 : 1.1;
    if (box[KIND] === "group" && !around) context.setLineDash([5, 3]);
    context.globalAlpha = around ? 0.45 : 1;
    context.beginPath();
    context.roundRect(box[X], box[Y], box[W], box[H], box[KIND] === "input" || box[KIND] === "output" ? 12 : 6);
    context.fill();
    context.globalAlpha = 1;
    context.stroke();
    context.setLineDash([]);
    if (this.scale < FAR) return;
    context.fillStyle = tint && tint.text ? tint.text : theme.text;
    if (around) {
      context.textAlign = "left";
      context.font = `600 12px ${FONT}`;
      context.fillText(box[TITLE], box[X] + 26, box[Y] + 17, box[W] - 32);
    } else {
      context.textAlign = "center";
      context.font = `12.5px ${FONT}`;
      context.fillText(box[TITLE], box[X] + box[W] / 2, box[Y] + 17, box[W] - 6);
      if (this.scale >= 0.4) {
        context.font = `10.5px ${FONT}`;
        if (!(tint && tint.text)) context.fillStyle = theme.quiet;
        box[FACTS].forEach((fact, k) => {
          if (faulty && k === box[FACTS].length - 1) context.fillStyle = theme.bad;
          context.fillText(fact, box[X] + box[W] / 2, box[Y] + 30 + 13 * k, box[W] - 6);
        });
      }
    }
    if (box[OPENS] && (around || box[KIND] === "group" || box[KIND] === "control" || chosen)) this.sign(context, box, border, around);
  }

  // The sign that opens or closes: in a group, or at the corner of a node, whose title has no room beside it.
  sign(context, box, color, open) {
    const node = !open && box[KIND] !== "group" && box[KIND] !== "control";
    const [x, y, r] = node ? [box[X], box[Y], 4] : [box[X] + 13, box[Y] + 12.5, 5];
    if (node) {
      context.beginPath();
      context.roundRect(x - 8, y - 8, 16, 16, 8);
      context.fillStyle = this.theme().paper;
      context.fill();
    }
    context.strokeStyle = color;
    context.lineWidth = 1.6;
    context.beginPath();
    context.moveTo(x - r, y); context.lineTo(x + r, y);
    if (!open) { context.moveTo(x, y - r); context.lineTo(x, y + r); }
    context.stroke();
  }

  // ----- pointers and keys -----

  at(px, py) {
    const x = px / this.scale + this.x, y = py / this.scale + this.y;
    let found = null;
    for (const box of this.data.boxes) {
      const rim = box[OPENS] === 1 && box[KEY] === this.selected ? 9 : 0; // where its sign is
      if (x >= box[X] - rim && x <= box[X] + box[W] && y >= box[Y] - rim && y <= box[Y] + box[H]) found = box; // inner ones come later
    }
    const mark = found && found[OPENS] && x < found[X] + 13 + MARK / 2 + 3 && y < found[Y] + 12 + MARK / 2 + 3;
    return { box: found, mark };
  }

  // The value of the line at a point of the canvas.
  line_at(px, py) {
    const x = px / this.scale + this.x, y = py / this.scale + this.y, near = NEAR / this.scale;
    const found = this.data.lines.find((line, k) => {
      const [left, top, right, bottom] = this.spans[k];
      return line[5] && x > left - near && x < right + near && y > top - near && y < bottom + near && distance(line[0], x, y) < near;
    });
    return found ? found[5] : null;
  }

  listen() {
    const canvas = this.canvas;
    const pointers = new Map();
    let moved = 0, apart = 0;
    const place = (event) => [event.offsetX, event.offsetY];
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      pointers.set(event.pointerId, place(event));
      moved = 0;
    });
    canvas.addEventListener("pointermove", (event) => {
      const before = pointers.get(event.pointerId), now = place(event);
      if (!before) {
        const { box } = this.at(...now);
        canvas.title = box ? [box[TITLE], ...box[FACTS], this.data.faults[box[KEY]] || ""].join("\n").trim() : "";
        canvas.classList.toggle("over", Boolean(box || this.line_at(...now)));
        return;
      }
      pointers.set(event.pointerId, now);
      const points = [...pointers.values()];
      if (points.length === 2) {
        const length = Math.hypot(points[0][0] - points[1][0], points[0][1] - points[1][1]);
        if (apart) this.zoom(length / apart, [(points[0][0] + points[1][0]) / 2, (points[0][1] + points[1][1]) / 2]);
        apart = length;
        moved = 99;
        return;
      }
      moved += Math.abs(now[0] - before[0]) + Math.abs(now[1] - before[1]);
      if (moved > 3) this.move(before[0] - now[0], before[1] - now[1]);
    });
    const up = (event) => {
      if (!pointers.delete(event.pointerId)) return;
      apart = 0;
      if (event.type !== "pointerup" || moved > 3) return;
      const { box, mark } = this.at(...place(event));
      const line = !mark && (!box || box[OPENS] === 2) ? this.line_at(...place(event)) : null;
      if (mark && box[KEY] === this.selected || mark && box[OPENS] === 2) this.handlers.toggled(box[KEY]);
      else if (line) this.select_value(line);
      else this.select(box ? box[KEY] : null);
    };
    canvas.addEventListener("pointerup", up);
    canvas.addEventListener("pointercancel", up);
    canvas.addEventListener("dblclick", (event) => {
      const { box } = this.at(...place(event));
      if (box && box[OPENS]) this.handlers.toggled(box[KEY]);
    });
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      if (event.ctrlKey || event.metaKey) this.zoom(Math.exp(-event.deltaY / 300), place(event));
      else if (event.shiftKey) this.move(event.deltaY, 0);
      else this.move(event.deltaX, event.deltaY);
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => {
      const way = { ArrowDown: [0, 1], ArrowUp: [0, -1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] }[event.key];
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (way && event.shiftKey) this.move(way[0] * 80, way[1] * 80);
      else if (way) this.step(way);
      else if (event.key === "Enter" && this.places.get(this.selected)?.[OPENS]) this.handlers.toggled(this.selected);
      else if (event.key === "+" || event.key === "=") this.zoom(1.25);
      else if (event.key === "-") this.zoom(0.8);
      else if (event.key === "0") this.fit();
      else if (event.key === "Escape") this.select(null);
      else return;
      event.preventDefault();
    });
  }

  // To the nearest box in a direction.
  step([dx, dy]) {
    const boxes = this.data.boxes;
    if (!boxes.length) return;
    const from = this.places.get(this.selected);
    if (!from) { this.select(boxes[0][KEY], { step: true }); return; }
    const middle = (box) => [box[X] + box[W] / 2, box[OPENS] === 2 ? box[Y] + 10 : box[Y] + box[H] / 2];
    const [x, y] = middle(from);
    let best = null, least = Infinity;
    for (const box of boxes) {
      if (box === from) continue;
      const [ox, oy] = middle(box);
      const along = dx ? (ox - x) * dx : (oy - y) * dy, across = Math.abs(dx ? oy - y : ox - x);
      const cost = along + 2.5 * across;
      if (along > 4 && cost < least) { least = cost; best = box; }
    }
    if (best) this.select(best[KEY], { step: true });
  }
}

function trace(context, points, straight) {
  let [x, y] = points;
  context.moveTo(x, y);
  for (let k = 2; k < points.length; k += 2) {
    const tx = points[k], ty = points[k + 1];
    if (straight || Math.abs(tx - x) < 0.5) context.lineTo(tx, ty);
    else {
      const bend = (ty - y) / 2;
      context.bezierCurveTo(x, y + bend, tx, ty - bend, tx, ty);
    }
    [x, y] = [tx, ty];
  }
}

// How far a point is from a line as `trace` draws it.
function distance(points, px, py) {
  let least = Infinity, [x, y] = points;
  for (let k = 2; k < points.length; k += 2) {
    const tx = points[k], ty = points[k + 1], bend = (ty - y) / 2;
    for (let step = 0; step <= STEPS; step++) {
      const t = step / STEPS, u = 1 - t;
      const cx = u * u * (u + 3 * t) * x + t * t * (t + 3 * u) * tx;
      const cy = u * u * u * y + 3 * u * u * t * (y + bend) + 3 * u * t * t * (ty - bend) + t * t * t * ty;
      least = Math.min(least, Math.hypot(cx - px, cy - py));
    }
    [x, y] = [tx, ty];
  }
  return least;
}

function arrow(context, points, color) {
  const x = points.at(-2), y = points.at(-1), down = y >= points.at(-3) ? 1 : -1;
  context.fillStyle = color;
  context.beginPath();
  context.moveTo(x, y);
  context.lineTo(x - 3.5, y - 7 * down);
  context.lineTo(x + 3.5, y - 7 * down);
  context.fill();
}
