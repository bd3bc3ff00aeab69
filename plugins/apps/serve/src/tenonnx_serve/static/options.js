// The options of a command as fields, by what the command says of itself.

import { h, unique } from "./dom.js";

// Fields for the options of a command, and `read()`, which gives what was filled in, by flag.
export function fields(options, command, lists = {}) {
  const readers = [];
  const shown = options.map((option) => {
    const id = unique("option");
    const help = h("p", { className: "help", id: `${id}-help` }, option.help);
    const [control, read] = control_of(option, { id, name: command + option.flag }, lists[option.flag]);
    readers.push(() => [option.flag, read()]);
    const label = h("label", { htmlFor: id }, words(option.flag));
    const flag = option.kind === "flag";
    return h("div", { className: `field${flag ? " check" : ""}` }, flag ? [control, label] : [label, control], help);
  });
  const read = () => Object.fromEntries(readers.map((each) => each()).filter(([, value]) => value !== undefined && value !== ""));
  return { shown, read };
}

export function words(flag) {
  const text = flag.replace(/^-+/, "").replaceAll("-", " ");
  return text[0].toUpperCase() + text.slice(1);
}

function control_of(option, { id, name }, names) {
  const told = { id, name, "aria-describedby": `${id}-help` };
  if (option.kind === "flag") {
    const box = h("input", { ...told, type: "checkbox", checked: option.default === true });
    return [box, () => (box.checked ? true : undefined)];
  }
  if (option.kind === "switch" || option.kind === "choice" || names) {
    const choices = option.kind === "switch" ? [["", option.default === null ? "By default" : `By default: ${option.default ? "on" : "off"}`], ["on", "On"], ["off", "Off"]]
      : [["", option.default ? `By default: ${option.default}` : "By default"],
        ...(names ? Object.entries(names) : option.choices.map((each) => [each, each]))];
    const select = h("select", told, choices.map(([value, text]) => h("option", { value }, names && value ? `${value} – ${text}` : text)));
    const meant = { on: true, off: false, "": undefined };
    return [select, () => (option.kind === "switch" ? meant[select.value] : select.value || undefined)];
  }
  const input = h("input", {
    ...told, type: "text", placeholder: option.default === null || option.default === true || option.default === false ? option.metavar.replaceAll("_", " ") : String(option.default), autocomplete: "off", spellcheck: false,
    inputMode: option.kind === "number" ? "decimal" : "text",
  });
  return [input, () => {
    const text = input.value.trim();
    if (!text) return undefined;
    return option.several ? text.split(/\s+/) : text;
  }];
}
