// A job as it goes on: its steps, a button that cancels it, and what it gave.

import { ask, follow } from "./api.js";
import { announce, fill, h, problem } from "./dom.js";

const KEY = "tenonnx-job-";

// Under what the last job of its kind is kept: for a model, or for two.
const kept = ({ task, model, other }) => `${KEY}${task}${model}${other || ""}`;

// Starts a job and shows it in `place`; a page that is opened again finds it by `resume`.
export async function start(question, place, show) {
  try {
    const job = await ask("/jobs", question);
    sessionStorage.setItem(kept(question), job.id);
    await watch(job.id, place, show);
  } catch (error) {
    fill(place, problem(error));
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
  await watch(id, place, show);
  return true;
}

// Does a job whose file goes to the downloads of the browser.
export async function compute(question) {
  const { id } = await ask("/jobs", question);
  const job = await follow(id, () => {});
  if (job.state !== "done") throw job.error || { what: "The job was cancelled." };
  h("a", { href: `/api/jobs/${id}/file`, download: job.file }).click();
}

async function watch(id, place, show) {
  const steps = h("ol", { className: "steps" });
  const heading = h("p", { className: "state" }, h("span", { className: "spinner", "aria-hidden": "true" }), h("span", {}, "Waiting"));
  const cancel = h("button", { type: "button", onclick: () => ask(`/jobs/${id}/cancel`) }, "Cancel");
  place.setAttribute("aria-busy", "true");
  fill(place, h("div", { className: "progress" }, heading, steps, cancel));
  let job;
  try {
    job = await follow(id, (now) => {
      const step = now.steps.at(-1) || (now.state === "waiting" ? "Waiting for another job" : "Starting");
      heading.lastChild.textContent = step;
      fill(steps, now.steps.slice(0, -1).map((text) => h("li", {}, text)));
      announce(step);
    });
  } catch (error) {
    fill(place, problem(error));
    return;
  } finally { place.removeAttribute("aria-busy"); }
  if (job.state === "cancelled") fill(place, h("p", { className: "note" }, "Cancelled. Nothing was written."));
  else if (job.state === "failed") fill(place, problem(job.error));
  else show(job);
  announce({ done: "Done", failed: "Failed", cancelled: "Cancelled" }[job.state]);
}
