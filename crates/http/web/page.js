// The live page: asks for the view again and again, and draws it.

import { drawChart } from "/assets/chart.js";
import { count, duration, each, html, say, svg } from "/assets/dom.js";
import { colour, drawRing, makeToken } from "/assets/ring.js";

const OFTEN_MS = 250;
const SELDOM_MS = 1000;
// The numbers are those of so many seconds.
const LATELY = 10;
// So many of the line are listed; the rest is counted.
const LISTED = 6;

const token = new URLSearchParams(location.hash.slice(1)).get("token");
// Another token in the address is no other page to the browser.
addEventListener("hashchange", () => location.reload());
const part = (id) => document.getElementById(id);
let chosen = null;
let shown = null;
// Where each token of the chosen resource was last: one that is under way is drawn there until it arrives.
let lastTokens = new Map();

// What a person is told when there is nothing new to see.
class Trouble extends Error {}
const SILENT = "The agent does not answer; retrying.";

async function get(path) {
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  const asked = fetch(path, { headers, cache: "no-store", signal: AbortSignal.timeout(5000) });
  const answer = await asked.catch(() => Promise.reject(new Trouble(SILENT)));
  if (answer.status === 401) throw new Trouble("The agent wants a token: add #token=… to the address.");
  const body = await answer.json().catch(() => Promise.reject(new Trouble(SILENT)));
  if (!answer.ok) throw new Trouble(body.message ?? SILENT);
  return body;
}

function choose(view) {
  const resource = view.resources.find(({ name }) => name === chosen) ?? view.resources[0];
  if (resource && resource.name !== chosen) {
    chosen = resource.name;
    lastTokens = new Map();
  }
  return resource;
}

function rememberTokens(resource) {
  for (const held of resource.tokens) lastTokens.set(held.slot, held);
  const known = [...lastTokens.values()].filter(({ slot }) => slot < resource.slots);
  resource.tokens = known.sort((a, b) => a.slot - b.slot);
}

function drawChoice(view) {
  const choice = part("resources");
  choice.hidden = view.resources.length === 0;
  each(choice, view.resources, ({ name }) => name, ({ name }) => {
    const button = html("button", { type: "button" }, name);
    button.addEventListener("click", () => {
      chosen = name;
      lastTokens = new Map();
      if (shown.whole) draw(shown);
      else drawChoice(shown);
    });
    return button;
  }, (button, { name }) => button.setAttribute("aria-pressed", name === chosen));
}

function drawNumbers(view, resource) {
  const lately = resource.waits.filter(({ at_s }) => at_s < view.now_s && at_s >= view.now_s - LATELY);
  const entries = lately.reduce((sum, second) => sum + second.entries, 0);
  const mean = lately.reduce((sum, second) => sum + second.entries * second.mean_ms, 0) / entries;
  const max = Math.max(...lately.map((second) => second.max_ms));
  const seconds = Math.min(LATELY, view.now_s);
  say(part("entries"), count(resource.entries));
  say(part("rate"), seconds ? (entries / seconds).toFixed(1) : "–");
  say(part("waiting"), count(resource.waiting));
  say(part("mean"), duration(entries ? mean : null));
  say(part("max"), duration(entries ? max : null));
  say(part("spread"), duration(entries ? max - mean : null));
}

const cell = (kind) => html("td", kind ? { class: kind } : {});

function drawInside(resource, name) {
  const make = ({ slot }) => {
    const dot = svg("svg", { viewBox: "-10 -10 20 20", class: "dot" }, makeToken(slot));
    return html("tr", {}, html("td", {}, dot), cell("client"), cell("peer-name"), cell("number"), cell("number"));
  };
  each(part("tokens"), resource.tokens, ({ slot }) => slot, make, (row, { slot, peer, free, holder }) => {
    const [dot, client, where, fencing, age] = row.children;
    dot.querySelector("g").setAttribute("class", `token ${colour(slot)}${free ? " free" : ""}`);
    client.classList.toggle("nobody", free);
    say(client, free ? "free" : holder?.label || "a client");
    say(where, name(peer));
    say(fencing, String(holder?.fencing ?? ""));
    say(age, holder ? duration(holder.age_ms) : "");
  });
}

function drawLine(resource, name) {
  const listed = resource.queue.slice(0, LISTED).map((waiter, i) => ({ ...waiter, place: i + 1 }));
  const make = () => html("tr", {}, cell("place"), cell("client"), cell("peer-name"), cell("number"));
  each(part("queue"), listed, ({ peer, ticket }) => `${peer}#${ticket}`, make, (row, { peer, place, client: who }) => {
    const [at, client, where, age] = row.children;
    say(at, String(place));
    say(client, who?.label || "a client");
    say(where, name(peer));
    say(age, duration(who?.age_ms));
  });
  const more = resource.waiting - listed.length;
  say(part("more"), more > 0 ? `and ${count(more)} more` : resource.waiting ? "" : "Nobody waits.");
}

function draw(view) {
  shown = view;
  const resource = choose(view);
  drawChoice(view);
  part("empty").hidden = Boolean(resource);
  document.querySelector("main").hidden = !resource;
  const several = (number, what) => `${count(number)} ${what}${number === 1 ? "" : "s"}`;
  const slots = resource?.slots ? `, ${several(resource.slots, "slot")}` : "";
  const whose = view.whole ? "" : "; entries and waits are those of this agent's clients";
  say(part("summary"), several(view.peers.length, "peer") + slots + whose);
  if (!resource) return;
  rememberTokens(resource);
  const labels = new Map(view.peers.map(({ peer, label }) => [peer, label]));
  const name = (peer) => labels.get(peer) ?? peer;
  drawRing(view, resource);
  drawNumbers(view, resource);
  drawInside(resource, name);
  drawLine(resource, name);
  drawChart(view, resource);
}

function report(trouble) {
  document.body.classList.toggle("stale", trouble === SILENT);
  say(part("status"), trouble);
}

// Runs `work`, and returns what there is to say of it. A fault of our own is for whoever looks into the console.
async function attempt(work) {
  try {
    await work();
    return "";
  } catch (error) {
    if (!(error instanceof Trouble)) console.error(error);
    return error instanceof Trouble ? error.message : "This page has a fault; see the console.";
  }
}

async function look() {
  let trouble = "";
  const failed = await attempt(async () => {
    // An agent asks the other peers about the resource that is looked at.
    const view = await get(chosen === null ? "/v1/view" : `/v1/view?name=${encodeURIComponent(chosen)}`);
    trouble = choose(view)?.trouble ?? "";
    draw(view);
  });
  report(failed || trouble);
  setTimeout(whenVisible, failed || !shown?.whole ? SELDOM_MS : OFTEN_MS);
}

// Nothing is asked for while nobody looks.
function whenVisible() {
  if (!document.hidden) return look();
  document.addEventListener("visibilitychange", whenVisible, { once: true });
}

look();
