// The connection to the server: where it is lost, the page says so, asks until it is back, and goes on.

import { ask, when_lost } from "./api.js";
import { $, announce } from "./dom.js";

const OFTEN = 1000, SELDOM = 5000; // milliseconds between questions, while the server is lost and while it is there

// Watches the server of number `known`; `regained` is told whether another one answers, once one does after a loss.
export function watch(known, regained) {
  let lost = false, timer = null;
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
      const { server } = await ask("/alive", null, "GET");
      const changed = server !== known;
      if (lost || changed) {
        known = server;
        lost = false;
        await regained(changed);
        if (!lost) say("");
      }
      ask_again(SELDOM);
    } catch (error) {
      if (!error.silent && lost) say("Another server answers here. Open the address that it printed: it has a token that is needed.");
      ask_again(OFTEN);
    }
  };
  when_lost(() => {
    if (lost) return;
    lost = true;
    say("The server does not answer. The model is opened again as soon as it does.");
    ask_again(OFTEN);
  });
  ask_again(SELDOM);
}
