// A job as it goes on: its steps, a button that cancels it, and what it gave.

import { ask, follow } from "./api.js";
import { announce, fill, h, problem } from "./dom.js";

const KEY = "tenonnx-job-";

// Under what the last job of its kind is kept: for a model, or for two.
const kept = ({ task, model, other }) => `${KEY}${task}${model}${other || ""}`;

const cancel = (id) => ask(`/jobs/${id}/cancel`);

// The turn of a job in each place: it shows one at a time.
const turns = new WeakMap();

// Begins a turn: the one before is over, and its job is cancelled where it goes on.
function begin_turn(place) {
  const before = turns.get(place), turn = { place, id: null, over: false };
  turns.set(place, turn);
  if (before) before.over = true;
  if (before?.id) cancel(before.id).catch(() => {});
  return turn;
}

// Starts a job and shows it in `place`; a page that is opened again finds it by `resume`.
export async function start(question, place, show) {
  const turn = begin_turn(place);
  try {
    const { id } = await ask("/jobs", question);
    if (turn.over) { await cancel(id); return; }
    sessionStorage.setItem(kept(question), id);
    await watch(id, turn, show);
  } catch (error) {
    if (!turn.over) fill(place, problem(error));
  }
}

// Shows the last job like `question`; tells whether there was one.
export async function resume(question, place, show) {
  const id = sessionStorage.getItem(kept(question));
  if (!id) return false;
  try {
    await ask(`/jobs/${id}`, null, "GET");
  } catch {
    sessionStorage.removeItem(kept(question));
    return false;
  }
  await watch(id, begin_turn(place), show);
  return true;
}

// Does a job whose file goes to the downloads of the browser.
export async function compute(question) {
  const { id } = await ask("/jobs", question);
  const job = await follow(id, () => {});
  if (job.state !== "done") throw job.error || { what: "The job was cancelled." };
  h("a", { href: `/api/jobs/${id}/file`, download: job.file }).click();
}

async function watch(id, turn, show) {
  const { place } = turn;
  turn.id = id;
  const steps = h("ol", { className: "steps" });
  const heading = h("p", { className: "state" }, h("span", { className: "spinner", "aria-hidden": "true" }), h("span", {}, "Waiting"));
  place.setAttribute("aria-busy", "true");
  fill(place, h("div", { className: "progress" }, heading, steps,
    h("button", { type: "button", onclick: () => cancel(id) }, "Cancel")));
  let job;
  try {
    job = await follow(id, (now) => {
      if (turn.over) return;
      const step = now.steps.at(-1) || (now.state === "waiting" ? "Waiting for another job" : "Starting");
      heading.lastChild.textContent = step;
      fill(steps, now.steps.slice(0, -1).map((text) => h("li", {}, text)));
      announce(step);
    });
  } catch (error) {
    if (!turn.over) fill(place, problem(error));
    return;
  } finally {
    turn.id = null;
    if (!turn.over) place.removeAttribute("aria-busy");
  }
  if (turn.over) return;
  if (job.state === "cancelled") fill(place, h("p", { className: "note" }, "Cancelled. Nothing was written."));
  else if (job.state === "failed") fill(place, problem(job.error));
  else show(job);
  announce({ done: "Done", failed: "Failed", cancelled: "Cancelled" }[job.state]);
}
