// What the server is asked.

export class Failure extends Error {
  constructor(error) {
    super(error.what);
    Object.assign(this, error);
  }
}

async function answered(response) {
  const type = response.headers.get("content-type") || "";
  if (response.ok) return response.json();
  if (type.includes("json")) throw new Failure(await response.json());
  throw new Failure({ what: (await response.text()).trim() || `The server answered ${response.status}.` });
}

// The words of a failure to reach the server, and who is told of the request that failed.
const SILENT = "The server does not answer.";
let lost = () => {};
export const when_lost = (told) => { lost = told; };

// The answer to a question. A connection may end just when it is used, so a question is asked twice before the server
// counts as lost; a job is not, as it may have started.
export async function ask(path, question, method = "POST", again = path !== "/jobs") {
  try {
    return await answered(await fetch(`/api${path}`, {
      method, body: method === "GET" ? undefined : JSON.stringify(question || {}),
    }));
  } catch (error) {
    if (error instanceof Failure) throw error;
    if (again) return ask(path, question, method, false);
    lost(path);
    throw new Failure({ what: SILENT, do: "Look at the terminal of tenonnx serve, and start it again.", silent: true });
  }
}

export const state = () => ask("/state", null, "GET");
export const look = (model, task, question) => ask(`/models/${model}/${task}`, question);

// Sends a file; `progress` is told the share that has arrived, and `cancelled`, a signal, ends it.
export function send(name, body, { beside = "", feeds = false, progress = () => {}, cancelled } = {}) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("PUT", `/api/files?${new URLSearchParams({ name, beside, feeds: feeds ? "1" : "" })}`);
    request.upload.onprogress = (event) => progress(event.lengthComputable ? event.loaded / event.total : 0);
    request.onload = () => {
      let said = {};
      try { said = JSON.parse(request.responseText); } catch { said = { what: request.responseText.trim() }; }
      if (request.status < 300) resolve(said);
      else reject(new Failure(said.what ? said : { what: `The server answered ${request.status}.` }));
    };
    request.onabort = () => reject(new Failure({ what: `Sending ${name} was cancelled.` }));
    cancelled?.addEventListener("abort", () => request.abort());
    request.onerror = () => reject(new Failure({ what: `${name} did not arrive.`, do: "Send it again." }));
    request.send(body);
  });
}

// Follows a job to its end; `changed` is told each state of it.
export function follow(id, changed) {
  return new Promise((resolve, reject) => {
    const news = new EventSource(`/api/jobs/${id}/news`);
    news.onmessage = (event) => {
      const job = JSON.parse(event.data);
      changed(job);
      if (["done", "failed", "cancelled"].includes(job.state)) {
        news.close();
        resolve(job);
      }
    };
    const forgotten = { what: "The job is not known any more.", do: "Start it again." };
    news.onerror = async () => {
      if (news.readyState === EventSource.CLOSED) { reject(new Failure(forgotten)); return; }
      try {
        await ask(`/jobs/${id}`, null, "GET"); // it is there: the events go on by themselves
      } catch (error) {
        news.close();
        reject(error.silent ? error : new Failure(forgotten));
      }
    };
  });
}
