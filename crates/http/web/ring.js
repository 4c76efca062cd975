// The ring of peers: where they lie, where their requests go, and where the tokens are.

import { each, say, svg } from "/assets/dom.js";

const CENTRE = 300;
// So many colours of tokens there are in the style sheet; then they begin again.
const COLOURS = 8;
const picture = document.getElementById("ring-picture");
const ring = svg("circle", { class: "circle", cx: CENTRE, cy: CENTRE });
const layers = ["ticks", "pointers", "nexts", "peers", "tokens"].map((name) => svg("g", { class: name }));
const [ticks, pointers, nexts, peers, tokens] = layers;
picture.append(ring, ...layers);

export const colour = (slot) => `slot-${slot % COLOURS}`;

// The point at an angle, clockwise from the top, and a distance from the centre.
function at(angle, distance) {
  return [CENTRE + distance * Math.sin(angle), CENTRE - distance * Math.cos(angle)];
}

const round = (number) => Math.round(number * 10) / 10;
const point = ([x, y]) => `${round(x)} ${round(y)}`;

// Angles of peers at their places, moved apart where they would cover each other.
function spread(places, gap) {
  const angles = places.map((place) => place * 2 * Math.PI);
  const least = Math.min(gap, (2 * Math.PI) / places.length);
  for (let round = 0; round < 300 && angles.length > 1; round++) {
    let moved = false;
    for (let i = 0; i < angles.length; i++) {
      const next = (i + 1) % angles.length;
      const turn = next === 0 ? 2 * Math.PI : 0;
      const lack = least - (angles[next] + turn - angles[i]);
      if (lack > 1e-4) {
        angles[i] -= lack / 2;
        angles[next] += lack / 2;
        moved = true;
      }
    }
    if (!moved) break;
  }
  return angles;
}

// A curve that bends towards the centre, with an arrow's head; it keeps a distance from both ends.
function arrow(from, to, bend, keepFrom, keepTo) {
  const control = [0, 1].map((axis) => CENTRE + ((from[axis] + to[axis]) / 2 - CENTRE) * bend);
  const towards = (start, distance) => {
    const [x, y] = [control[0] - start[0], control[1] - start[1]];
    const length = Math.hypot(x, y) || 1;
    return [start[0] + (x / length) * distance, start[1] + (y / length) * distance];
  };
  const [start, end] = [towards(from, keepFrom), towards(to, keepTo)];
  const angle = Math.atan2(end[1] - control[1], end[0] - control[0]);
  const barb = (turn) => [end[0] - 8 * Math.cos(angle + turn), end[1] - 8 * Math.sin(angle + turn)];
  return `M${point(start)}Q${point(control)} ${point(end)}M${point(barb(0.45))}L${point(end)}L${point(barb(-0.45))}`;
}

// Where everything is, for so many peers. Addresses need room beside the ring, numbers fit into the peers.
function layout(view) {
  const radius = view.whole ? 232 : 190;
  const size = Math.max(4, Math.min(21, (Math.PI * radius * 0.72) / Math.max(1, view.peers.length)));
  const angles = spread(view.peers.map((peer) => peer.place), (2 * size + 12) / radius);
  const spots = new Map(view.peers.map((peer, i) => [peer.peer, { peer, angle: angles[i] }]));
  return { radius, size, spots };
}

// The places in line of each peer's clients, as a short text.
function placesOf(resource) {
  const places = new Map();
  resource.queue.forEach((waiter, i) => places.set(waiter.peer, [...(places.get(waiter.peer) ?? []), i + 1]));
  const short = (all) => all.slice(0, 3).join("·") + (all.length > 3 ? "…" : "");
  return new Map([...places].map(([peer, all]) => [peer, short(all)]));
}

function drawPeers(view, resource, { radius, size, spots }) {
  const places = placesOf(resource);
  const all = [...spots.values()];
  each(peers, all, ({ peer }) => peer.peer, () => svg("g", {}, svg("circle"), svg("text", { class: "name" }), svg("text", { class: "places" }), svg("title")), (group, { peer, angle }) => {
    const [circle, name, line, title] = group.children;
    const [x, y] = at(angle, radius);
    const keeps = peer.peer === resource.keeper;
    circle.setAttribute("class", `peer${keeps ? " keeps" : ""}${peer.up ? "" : " down"}${!view.whole && peer.seen ? " own" : ""}`);
    circle.setAttribute("cx", x);
    circle.setAttribute("cy", y);
    circle.setAttribute("r", size);
    const beside = Math.abs(Math.sin(angle)) < 0.3 ? "middle" : Math.sin(angle) > 0 ? "start" : "end";
    const [outX, outY] = at(angle, radius + size + (beside === "middle" ? 15 : 9));
    const isInside = view.whole && size > 9;
    name.setAttribute("class", isInside ? `name${keeps ? " keeps" : ""}` : "name beside");
    name.setAttribute("x", isInside ? x : outX);
    name.setAttribute("y", (isInside ? y : outY) + 5);
    name.setAttribute("text-anchor", isInside ? "middle" : beside);
    say(name, isInside || !view.whole ? peer.label : "");
    line.setAttribute("x", outX);
    line.setAttribute("y", outY + (view.whole ? 4 : outY < CENTRE ? -10 : 20));
    line.setAttribute("text-anchor", beside);
    say(line, places.get(peer.peer) ?? "");
    say(title, `${view.whole ? `Peer ${peer.label}, ` : ""}${peer.address}${peer.up ? "" : ", not connected"}${keeps ? ", keeps the line" : ""}`);
  });
  const displaced = all.filter(({ peer, angle }) => Math.abs(Math.sin((peer.place * 2 * Math.PI - angle) / 2)) * 2 * radius > 1);
  each(ticks, displaced, ({ peer }) => peer.peer, () => svg("path"), (path, { peer }) => {
    const angle = peer.place * 2 * Math.PI;
    path.setAttribute("d", `M${point(at(angle, radius - 5))}L${point(at(angle, radius + 5))}`);
  });
}

function drawPointers(resource, { radius, size, spots }) {
  const known = resource.pointers.filter(({ from, to }) => spots.has(from) && spots.has(to));
  each(pointers, known, ({ from }) => from, () => svg("path", { class: "pointer" }), (path, { from, to }) => {
    const [start, end] = [from, to].map((peer) => at(spots.get(peer).angle, radius));
    path.setAttribute("d", arrow(start, end, 0.45, size + 3, size + 5));
  });
}

function drawTokens(resource, { radius, size, spots }) {
  const here = new Map();
  const placed = resource.tokens.filter(({ peer }) => spots.has(peer)).map((token) => {
    const beside = here.get(token.peer) ?? [];
    here.set(token.peer, [...beside, token]);
    return { token, nth: beside.length };
  });
  const spot = ({ token, nth }) => {
    const distance = radius - size - 17;
    const fan = ((nth - (here.get(token.peer).length - 1) / 2) * 22) / distance;
    return at(spots.get(token.peer).angle + fan, distance);
  };
  each(tokens, placed, ({ token }) => token.slot, ({ token }) => svg("g", {}, svg("circle", { r: 9 }), svg("text", { y: 4, "text-anchor": "middle" }, String(token.slot))), (group, one) => {
    const [x, y] = spot(one);
    group.setAttribute("class", `token ${colour(one.token.slot)}${one.token.holder ? "" : " free"}`);
    group.style.transform = `translate(${round(x)}px, ${round(y)}px)`;
  });
  const going = placed.filter(({ token }) => token.next && token.next !== token.peer && spots.has(token.next));
  each(nexts, going, ({ token }) => token.slot, () => svg("path"), (path, one) => {
    const end = at(spots.get(one.token.next).angle, radius);
    path.setAttribute("class", `next ${colour(one.token.slot)}`);
    path.setAttribute("d", arrow(spot(one), end, 0.7, 12, size + 5));
  });
}

export function drawRing(view, resource) {
  const where = layout(view);
  ring.setAttribute("r", where.radius);
  drawPeers(view, resource, where);
  drawPointers(resource, where);
  drawTokens(resource, where);
  const name = (peer) => where.spots.get(peer)?.peer.label ?? "unknown";
  const tokensAt = resource.tokens.map((token) => `token ${token.slot} at ${name(token.peer)}`).join(", ");
  picture.setAttribute("aria-label", `${view.peers.length} peers on a ring; ${name(resource.keeper)} keeps the line; ${tokensAt}`);
}
