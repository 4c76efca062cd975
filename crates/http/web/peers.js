// The table of peers: state, voter role and session.

import { count, duration, each, html, say } from "/assets/dom.js";

const rows = document.getElementById("peer-rows");
const STATES = { runs: "runs", killed: "killed", frozen: "frozen", cut_off: "cut off" };
const VOTES = { no: "", learns: "learns", votes: "votes", leads: "leads" };

// A peer's failure in one word; empty if it runs.
export function fault({ state: known, up }) {
  if (known) return known === "runs" ? "" : STATES[known];
  return up ? "" : "down";
}

function state(peer, own) {
  if (peer.state) return STATES[peer.state];
  if (own) return "this agent";
  return `${peer.up ? "up" : "down"}${peer.since_ms == null ? "" : ` ${duration(peer.since_ms)}`}`;
}

// The session's ID, and when it expires unless it is renewed.
function session(peer) {
  if (peer.session == null) return "none";
  const left = peer.observed && peer.session_ms != null ? ` · ${duration(peer.session_ms)}` : "";
  return `${peer.session}${left}`;
}

const inOrder = (view) => (a, b) => {
  if (!view.whole && a.up !== b.up) return a.up ? 1 : -1;
  return a.label.localeCompare(b.label, "en", { numeric: true });
};

// `controls` is null unless this is a demo.
export function drawPeers(view, controls) {
  const cell = (kind) => html("td", { class: kind });
  const make = (peer) => {
    const row = html("tr", {}, cell("peer-label"), cell("state"), cell("vote"), cell("session"));
    if (controls) row.append(html("td", { class: "acts" }, ...controls.buttons(peer)));
    return row;
  };
  each(rows, [...view.peers].sort(inOrder(view)), ({ peer }) => peer, make, (row, peer) => {
    const [label, at, vote, lease, acts] = row.children;
    row.classList.toggle("gone", !peer.up);
    say(label, peer.label);
    if (label.title !== peer.address) label.title = peer.address;
    say(at, state(peer, peer.observed && !view.whole));
    say(vote, VOTES[peer.voter] ?? peer.voter);
    say(lease, session(peer));
    if (acts) controls.update(acts, peer);
  });
  const down = view.peers.filter((peer) => !peer.up).length;
  const votes = view.peers.filter(({ voter }) => voter === "votes" || voter === "leads").length;
  say(document.getElementById("peers-note"), `${count(votes)} vote${votes === 1 ? "s" : ""}${down ? `, ${count(down)} down` : ""}`);
}
