// What was filled into a form, kept for its model in this tab of the browser.

const PREFIX = "tenonnx-form-";

// Fills in what was kept under `key`, keeps what changes, and calls `changed` then. Controls are known by their names;
// each gets the event "restored" once all have their values.
export function keep(form, key, changed = () => {}) {
  const kept = read(key);
  const known = named(form).filter((control) => control.name in kept);
  for (const control of known) {
    if (control.type === "checkbox") control.checked = kept[control.name];
    else control.value = kept[control.name];
  }
  for (const control of known) control.dispatchEvent(new Event("restored"));
  const save = () => {
    const values = named(form).map((control) => [control.name, control.type === "checkbox" ? control.checked : control.value]);
    sessionStorage.setItem(PREFIX + key, JSON.stringify(Object.fromEntries(values)));
    changed();
  };
  form.addEventListener("input", save);
  form.addEventListener("change", save);
}

const named = (form) => [...form.elements].filter((control) => control.name && control.type !== "file");

function read(key) {
  try { return JSON.parse(sessionStorage.getItem(PREFIX + key)) || {}; } catch { return {}; }
}
