// The search, by Ctrl-K: nodes by op, name, values and attributes.

import { $, announce, fill, h, plural } from "./dom.js";

const SHOWN = 60;

// Opens the search, for `text` if it is given.
export function search(page, text = null) {
  const dialog = $("search"), input = $("search-text"), list = $("search-found");
  let found = [], at = 0;
  const choose = (entry) => { dialog.close(); page.reveal(entry[0]); };
  const mark = (place) => {
    at = Math.max(0, Math.min(place, list.children.length - 1));
    [...list.children].forEach((row, k) => row.setAttribute("aria-selected", String(k === at)));
    if (list.children[at]) {
      input.setAttribute("aria-activedescendant", list.children[at].id);
      list.children[at].scrollIntoView({ block: "nearest" });
    }
  };
  const look = () => {
    const conditions = input.value.toLowerCase().split(/\s+/).filter(Boolean).map(condition);
    found = [...page.about.index, ...page.about.interface].filter((entry) => conditions.every((holds) => holds(entry)));
    fill(list, found.slice(0, SHOWN).map((entry, k) => h("li", {
      id: `found-${k}`, role: "option", onclick: () => choose(entry),
    }, h("strong", {}, entry[1]), " ", h("span", { className: "name" }, entry[2]), " ",
    h("span", { className: "help" }, entry[3].filter((name) => conditions.length && input.value && name.toLowerCase().includes(input.value.toLowerCase().trim())).join(", ")))));
    $("search-count").textContent = found.length > SHOWN ? `${SHOWN} of ${plural(found.length, "result")}` : plural(found.length, "result");
    announce($("search-count").textContent);
    mark(0);
  };
  input.oninput = look;
  input.onkeydown = (event) => {
    if (event.key === "ArrowDown") mark(at + 1);
    else if (event.key === "ArrowUp") mark(at - 1);
    else if (event.key === "Enter" && found[at]) choose(found[at]);
    else return;
    event.preventDefault();
  };
  if (text !== null) input.value = text;
  dialog.showModal();
  input.select();
  look();
}

const OPERATORS = { ">": (a, b) => a > b, "<": (a, b) => a < b, ">=": (a, b) => a >= b, "<=": (a, b) => a <= b };

// A word of the search as a condition: op:NAME, an attribute beside =, <, <=, > or >=, or a part of a name.
function condition(word) {
  if (word.startsWith("op:")) return ([, op]) => op.toLowerCase().replace("ai.onnx::", "") === word.slice(3) || op.toLowerCase() === word.slice(3);
  const [, name, operator, wanted] = word.match(/^(\w+)(>=|<=|>|<|=)(.+)$/) || [];
  if (name) {
    return ([, , , , attributes]) => Object.entries(attributes).some(([each, value]) => {
      if (each.toLowerCase() !== name) return false;
      return operator === "=" ? String(value).toLowerCase() === wanted : OPERATORS[operator](Number(value), Number(wanted));
    });
  }
  return ([, op, label, names]) => `${op} ${label} ${names.join(" ")}`.toLowerCase().includes(word);
}
