// The search, by Ctrl-K: nodes by op and name.

import { $, announce, fill, h, plural } from "./dom.js";

const SHOWN = 60;

export function search(page) {
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
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    found = page.about.index.filter(([, op, name]) => {
      const text = `${op} ${name}`.toLowerCase();
      return words.every((word) => text.includes(word));
    });
    fill(list, found.slice(0, SHOWN).map((entry, k) => h("li", {
      id: `found-${k}`, role: "option", onclick: () => choose(entry),
    }, h("strong", {}, entry[1]), " ", h("span", { className: "name" }, entry[2]))));
    $("search-count").textContent = found.length > SHOWN ? `${SHOWN} of ${plural(found.length, "node")}` : plural(found.length, "node");
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
  dialog.showModal();
  input.select();
  look();
}
