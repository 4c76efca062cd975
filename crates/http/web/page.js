// The live page: polls the view and draws it.

import { drawChart } from "/assets/chart.js";
import { count, duration, each, html, proof, said, say, svg } from "/assets/dom.js";
import { drawList, onSearch } from "/assets/list.js";
import { drawPeers } from "/assets/peers.js";
import { colour, drawRing, isLost, makeToken } from "/assets/ring.js";

const OFTEN_MS = 250;
const SELDOM_MS = 1000;
// The counters cover this many seconds.
const LATELY = 10;
// This many waiters are listed; the rest is counted.
const LISTED = 6;

const part = (id) => document.getElementById(id);
const main = document.querySelector("main");
let chosen = said().get("name");
let shown = null;
// The controls of a demo.
let controls = null;
// The last position of each token of the selected resource. A token in transit is drawn there until it arrives, and a
// token of a dead peer until it is created again.
let lastTokens = new Map();

// An error to show instead of a new view.
class PageError extends Error {}
const SILENT = "The agent does not answer; retrying.";

async function get(path) {
  const asked = fetch(path, { headers: proof(), cache: "no-store", signal: AbortSignal.timeout(5000) });
  const answer = await asked.catch(() => Promise.reject(new PageError(SILENT)));
  if (answer.status === 401) throw new PageError("The agent requires a token: add #token=… to the address (default: the file token in its data directory).");
  const body = await answer.json().catch(() => Promise.reject(new PageError(SILENT)));
  if (!answer.ok) throw new PageError(body.message ?? SILENT);
  return body;
}

// Selects another resource, and records it in the address.
function choose(name) {
  const address = said();
  address.set("name", name);
  history.pushState(null, "", `#${address}`);
  lookAt(name);
}

function lookAt(name) {
  if (name === chosen) return;
  chosen = name;
  lastTokens = new Map();
  if (shown) drawList(shown, chosen, choose);
  hurry();
}

function rememberTokens(resource) {
  for (const held of resource.tokens) lastTokens.set(held.slot, held);
  const known = [...lastTokens.values()].filter(({ slot }) => slot < resource.slots);
  resource.tokens = known.sort((a, b) => a.slot - b.slot);
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

function drawInside(view, resource, name) {
  const make = ({ slot }) => {
    const dot = svg("svg", { viewBox: "-10 -10 20 20", class: "dot" }, makeToken(slot));
    return html("tr", {}, html("td", {}, dot), cell("client"), cell("peer-name"), cell("number"), cell("number"));
  };
  each(part("tokens"), resource.tokens, ({ slot }) => slot, make, (row, token) => {
    const [dot, client, where, fencing, age] = row.children;
    const { slot, peer, free, holder } = token;
    const lost = isLost(view, token);
    dot.querySelector("g").setAttribute("class", `token ${colour(slot)}${free ? " free" : ""}${lost ? " lost" : ""}`);
    row.classList.toggle("lost", lost);
    client.classList.toggle("unheld", free);
    say(client, lost ? "lost with its peer" : free ? "free" : holder?.label || "a client");
    say(where, name(peer));
    say(fencing, String(holder?.fencing ?? ""));
    say(age, holder && !lost ? duration(holder.age_ms) : "");
  });
}

function drawLine(resource, name) {
  const listed = resource.queue.slice(0, LISTED).map((waiter, i) => ({ ...waiter, place: i + 1 }));
  const make = () => html("tr", {}, cell("place"), cell("client"), cell("peer-name"), cell("number"));
  each(part("queue"), listed, ({ peer, ticket }) => `${peer}#${ticket}`, make, (row, { peer, place, client: waiter }) => {
    const [at, client, where, age] = row.children;
    say(at, String(place));
    say(client, waiter?.label || "a client");
    say(where, name(peer));
    say(age, duration(waiter?.age_ms));
  });
  const more = resource.waiting - listed.length;
  const unseen = `${count(more)} waiting; only the coordinator knows the order.`;
  const rest = listed.length ? `and ${count(more)} more` : unseen;
  say(part("more"), more > 0 ? rest : resource.waiting ? "" : "No client waits.");
}

// The latest run, if runs take place once per period. Times of day are those of the browser.
function drawPeriod({ period }) {
  part("period").hidden = !period;
  if (!period) return;
  const { succeeded, failures, holds, host, ended_ms, left_ms } = period;
  const time = (ms) => new Date(ms).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  const next = holds ? `Next from ${time(Date.now() + left_ms)}, in ${duration(left_ms)}.` : "Another attempt may start.";
  const times = failures === 1 ? "once" : `${count(failures)} times`;
  const end = succeeded ? "Ran successfully until" : `Failed ${times}, last at`;
  say(part("period"), `${end} ${time(ended_ms)} on ${host || "a host"}. ${next}`);
}

function drawSummary(view, resource) {
  const several = (number, what) => `${count(number)} ${what}${number === 1 ? "" : "s"}`;
  const slots = resource?.slots ? `, ${resource.name} with ${several(resource.slots, "slot")}` : "";
  const whose = view.whole ? "" : "; grants and waits of this agent's clients";
  say(part("summary"), several(view.peers.length, "peer") + slots + whose);
  say(part("problem"), resource?.problem ?? view.problem ?? "");
  say(part("empty-name"), chosen ?? "");
  part("unknown").hidden = Boolean(resource) || chosen === null;
  part("empty").hidden = Boolean(resource) || chosen !== null;
  part("resources").hidden = view.resources.length === 0;
  main.hidden = !resource;
}

function draw(view) {
  shown = view;
  const resource = view.chosen;
  // Ignore the answer for a resource that is no longer selected.
  if (resource && chosen !== null && resource.name !== chosen) return;
  if (resource) chosen = resource.name;
  drawList(view, chosen, choose);
  drawSummary(view, resource);
  if (!resource) return;
  rememberTokens(resource);
  const labels = new Map(view.peers.map(({ peer, label }) => [peer, label]));
  const name = (peer) => labels.get(peer) ?? peer;
  drawRing(view, resource);
  drawNumbers(view, resource);
  drawPeriod(resource);
  drawInside(view, resource, name);
  drawLine(resource, name);
  drawPeers(view, controls);
  drawChart(view, resource);
  controls?.draw(view, resource);
}

function report(problem) {
  document.body.classList.toggle("stale", problem === SILENT);
  say(part("status"), problem);
}

// Runs `work`, and returns an error text or "". Bugs of this page are logged to the console.
async function attempt(work) {
  try {
    await work();
    return "";
  } catch (error) {
    if (!(error instanceof PageError)) console.error(error);
    return error instanceof PageError ? error.message : "Internal error of this page; see the console.";
  }
}

let timer = null;

async function look() {
  timer = null;
  const failed = await attempt(async () => {
    // For the selected resource an agent also asks the other peers.
    const view = await get(chosen === null ? "/v1/view" : `/v1/view?name=${encodeURIComponent(chosen)}`);
    if (view.whole && !controls) {
      controls = await import("/assets/controls.js");
      controls.place(part("problem"));
    }
    draw(view);
  });
  report(failed);
  timer = setTimeout(whenVisible, failed || !shown?.whole ? SELDOM_MS : OFTEN_MS);
}

// Polls now, unless a poll is running.
function hurry() {
  if (timer === null) return;
  clearTimeout(timer);
  look();
}

// Pauses polling while the page is hidden.
function whenVisible() {
  if (!document.hidden) return look();
  document.addEventListener("visibilitychange", whenVisible, { once: true });
}

// The user has edited the address, or gone back.
addEventListener("hashchange", () => lookAt(said().get("name")));
onSearch(() => shown && drawList(shown, chosen, choose));
look();
