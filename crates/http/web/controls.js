// The controls of a demo: failures of peers, number of clients, number of slots. An agent does not serve this file.

import { html, proof, say } from "/assets/dom.js";

const ACTS = [
  ["kill", "kill", "kills it, like kill -9"],
  ["freeze", "freeze", "suspends it, like kill -STOP"],
  ["cut_off", "cut off", "cuts it off from the network"],
  ["bring_back", "bring back", "restarts, continues or reconnects it"],
];
const fits = (act, state) => (act === "bring_back" ? state !== "runs" : state === "runs");

const bar = html("section", { id: "controls", "aria-label": "Controls" });
const refusal = html("p", { id: "refusal", role: "status" });
let settings = { clients: null };
// The selected resource, and the peer of a holder.
let looked = null;
let holder = null;

async function ask(body) {
  const request = body ? { method: "POST", body: JSON.stringify(body) } : {};
  const answer = await fetch("/demo", { ...request, headers: proof() });
  const reply = await answer.json();
  if (answer.ok) settings = reply;
  say(refusal, answer.ok ? "" : reply.message);
  refresh();
}

// A busy button ignores further clicks. It is dimmed rather than disabled, because a disabled button would lose the
// keyboard focus.
function press(button, body) {
  button.addEventListener("click", async () => {
    const wanted = body();
    if (isBusy(button) || wanted === null) return;
    button.dataset.busy = "";
    dim(button, true);
    await ask(wanted).catch(() => say(refusal, "The demo does not answer."));
    delete button.dataset.busy;
    dim(button, false);
  });
  return button;
}

const isBusy = (button) => "busy" in button.dataset;

function dim(button, isDim) {
  if (isDim) button.setAttribute("aria-disabled", "true");
  else button.removeAttribute("aria-disabled");
}

// The buttons of one peer.
export function buttons({ label }) {
  return ACTS.map(([act, text, what]) => {
    const button = html("button", { type: "button", "data-act": act, title: `Peer ${label}: ${what}` }, text);
    return press(button, () => ({ do: act, peer: Number(label) }));
  });
}

export function update(cell, { state }) {
  const focused = document.activeElement;
  for (const button of cell.children) button.hidden = !fits(button.dataset.act, state) && !isBusy(button);
  // Moves the keyboard focus to the button that replaces a hidden one.
  if (cell.contains(focused) && focused.hidden) cell.querySelector("button:not([hidden])")?.focus();
}

function stepper(id, text, value, body) {
  const shown = html("output", { id });
  const step = (sign, by, what) => press(html("button", { type: "button", "aria-label": what, title: what }, sign), () => body(value() + by));
  const element = html("span", { class: "stepper" }, html("span", {}, text), step("−", -1, `one fewer: ${text}`), shown, step("+", 1, `one more: ${text}`));
  return { element, draw: () => say(shown, String(value() ?? "–")) };
}

const clients = stepper("clients", "clients per peer", () => settings.clients, (many) => ({ do: "clients", clients: Math.max(0, many) }));
const slots = stepper("slots", "slots", () => looked?.slots, (many) => ({ do: "slots", name: looked.name, slots: Math.max(1, many) }));
const strike = press(html("button", { type: "button", id: "strike", class: "strong" }, "Kill the peer of a holder"), () => holder === null ? null : { do: "kill", peer: holder });
bar.append(strike, clients.element, slots.element, refusal);

function refresh() {
  clients.draw();
  slots.draw();
}

// Inserts the controls above the page.
export function place(main) {
  main.before(bar);
  document.body.classList.add("demo");
  ask(null);
}

export function draw(view, resource) {
  looked = resource;
  const numbers = new Map(view.peers.filter(({ up }) => up).map(({ peer, label }) => [peer, Number(label)]));
  const inside = resource.tokens.filter(({ free, peer }) => !free && numbers.has(peer));
  holder = numbers.get(inside[0]?.peer) ?? null;
  if (!isBusy(strike)) dim(strike, holder === null);
  refresh();
}
