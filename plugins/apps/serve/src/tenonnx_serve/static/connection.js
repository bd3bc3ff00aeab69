// The connection to the server: where it is lost, the page says so, asks until it is back, and goes on.

import { ask, when_lost } from "./api.js";
import { $, announce } from "./dom.js";

const OFTEN = 1000, SELDOM = 5000; // milliseconds between questions, while the server is lost and while it is there

const ALIVE = "/alive";

// Watches the server of number `known`. Once a server answers after a loss, `regained` is told whether it is another one,
// and whether the page missed an answer.
export function watch(known, regained) {
  let lost = false, missed = false, timer = null;
  const say = (text) => {
    $("connection").hidden = !text;
    $("connection").textContent = text;
    if (text) announce(text);
  };
  const ask_again = (after) => {
    clearTimeout(timer);
    timer = setTimeout(check, after);
  };
  const check = async () => {
    if (document.hidden && !lost) { ask_again(SELDOM); return; }
    try {
      const { server } = await ask(ALIVE, null, "GET");
      const changed = server !== known;
      if (lost || changed) {
        const told = [changed, missed];
        known = server;
        lost = missed = false;
        await regained(...told);
        if (!lost) say("");
      }
      ask_again(SELDOM);
    } catch (error) {
      if (!error.silent && lost) say("Another server answers here. Open the address that it printed: it has a token that is needed.");
      ask_again(OFTEN);
    }
  };
  when_lost((path) => {
    missed ||= path !== ALIVE;
    if (lost) return;
    lost = true;
    say("The server does not answer. The model is opened again as soon as it does.");
    ask_again(OFTEN);
  });
  ask_again(SELDOM);
}
