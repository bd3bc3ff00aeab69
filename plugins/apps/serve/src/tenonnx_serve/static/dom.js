// Elements, made of texts alone: nothing that a model says is ever read as HTML.

export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && name !== "list" && name !== "form") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// A paragraph of documentation, in which ``names`` are shown as code.
export function documentation(text) {
  const parts = text.split(/``([^`\n]+)``/);
  return h("p", { className: "documentation" }, parts.map((part, place) => place % 2 ? h("code", {}, part) : part));
}

export const $ = (id) => document.getElementById(id);

// Replaces what is in an element; the focus stays there if it was.
export function fill(element, ...children) {
  const held = element.contains(document.activeElement) && element !== document.activeElement;
  element.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  if (held) take_focus(element);
}

export function take_focus(element) {
  if (!element.hasAttribute("tabindex")) element.tabIndex = -1;
  element.focus({ preventScroll: true });
}

let numbers = 0;
export const unique = (name) => `${name}-${++numbers}`;

export function announce(text) {
  $("status").textContent = text;
}

export function plural(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

export function megabytes(bytes) {
  if (bytes === null || bytes === undefined) return "";
  if (bytes >= 1e9) return `${(bytes / 1e9).toFixed(2)} GB`;
  if (bytes >= 1e6) return `${(bytes / 1e6).toFixed(bytes >= 1e8 ? 0 : 2)} MB`;
  return bytes >= 1e4 ? `${(bytes / 1e6).toFixed(3)} MB` : `${bytes.toLocaleString("en")} bytes`;
}

export function number(value) {
  if (value === null || value === undefined) return "";
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size >= 1e-3 && size < 1e6 ? String(Number(value.toPrecision(4))) : value.toExponential(2);
}

// An error of ours: what must hold, what was given, what there is, and what to do.
export function problem(error) {
  const row = (label, text) => text && h("div", { className: "part" }, h("dt", {}, label), h("dd", {}, text));
  return h(
    "div", { className: "problem", role: "alert" },
    h("p", {}, error.what || String(error)),
    h("dl", {}, row("Given", error.given), row("Available", error.available), row("What to do", error.do), row("Also", error.also)),
  );
}

// A table that scrolls on its own, where it is wide.
export function table(headers, rows, caption) {
  return h(
    "div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": caption },
    h("table", {},
      h("caption", { className: "unseen" }, caption),
      h("thead", {}, h("tr", {}, headers.map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((cell) => h("td", {}, cell)))))),
  );
}
