// The ring: positions of the peers, their pointers to the coordinator, and the tokens.

import { each, say, svg } from "/assets/dom.js";
import { fault } from "/assets/peers.js";

const CENTRE = 300;
// Number of token colours in the style sheet; further slots reuse them.
const COLOURS = 8;
const picture = document.getElementById("ring-picture");
const ring = svg("circle", { class: "circle", cx: CENTRE, cy: CENTRE });
const layers = ["ticks", "pointers", "nexts", "peers", "tokens"].map((name) => svg("g", { class: name }));
const [ticks, pointers, nexts, peers, tokens] = layers;
picture.append(ring, ...layers);

// Whether a token is at a peer that is down: it is lost until it is created again.
export function isLost(view, { peer }) {
  return view.whole && view.peers.some((one) => one.peer === peer && !one.up && !one.observed);
}

export const colour = (slot) => `slot-${slot % COLOURS}`;

// The point at an angle, clockwise from the top, and a distance from the centre.
function at(angle, distance) {
  return [CENTRE + distance * Math.sin(angle), CENTRE - distance * Math.cos(angle)];
}

const round = (number) => Math.round(number * 10) / 10;
const point = ([x, y]) => `${round(x)} ${round(y)}`;

// The angles of peers, moved apart where they would overlap.
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

// An arrow that bends towards the centre and keeps a distance from both ends. Between neighbours it is straight for
// lack of space.
function arrow(from, to, bend, keepFrom, keepTo) {
  const far = Math.min(1, Math.hypot(to[0] - from[0], to[1] - from[1]) / CENTRE);
  const control = [0, 1].map((axis) => CENTRE + ((from[axis] + to[axis]) / 2 - CENTRE) * (1 - bend * far));
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

// Positions and sizes. Addresses need space beside the ring, numbers fit into the peers.
function layout(view) {
  const radius = view.whole ? 232 : 190;
  const size = Math.max(4, Math.min(21, (Math.PI * radius * 0.72) / Math.max(1, view.peers.length)));
  const angles = spread(view.peers.map((peer) => peer.place), (2 * size + 26) / radius);
  const spots = new Map(view.peers.map((peer, i) => [peer.peer, { peer, angle: angles[i] }]));
  return { radius, size, spots };
}

// The text beside a peer: the first label of its host name if that is unique, otherwise the whole name or address.
function short({ label }, { peers: all }) {
  const [first] = label.split(".");
  const alone = all.filter((other) => other.label.split(".")[0] === first).length === 1;
  return /^\d+$/.test(first) || !alone ? label : first;
}

// The queue positions of each peer's clients, as a short text.
function placesOf(resource) {
  const places = new Map();
  resource.queue.forEach((waiter, i) => places.set(waiter.peer, [...(places.get(waiter.peer) ?? []), i + 1]));
  const short = (all) => all.slice(0, 3).join("·") + (all.length > 3 ? "…" : "");
  return new Map([...places].map(([peer, all]) => [peer, short(all)]));
}

const makePeer = () => {
  const [name, places] = ["name", "places"].map((kind) => svg("text", { class: kind }));
  return svg("g", {}, svg("circle"), name, places, svg("title"));
};

function place(element, [x, y], names = ["x", "y"]) {
  element.setAttribute(names[0], round(x));
  element.setAttribute(names[1], round(y));
}

function drawPeer(group, { peer, angle }, view, keeps, places, { radius, size }) {
  const [circle, name, line, title] = group.children;
  const marks = { keeps, down: !peer.up, own: peer.observed && !view.whole };
  const spot = at(angle, radius);
  circle.setAttribute("class", ["peer", ...Object.keys(marks).filter((mark) => marks[mark])].join(" "));
  circle.setAttribute("r", size);
  place(circle, spot, ["cx", "cy"]);

  // Texts beside a peer extend away from the ring.
  const lean = Math.abs(Math.sin(angle)) < 0.3 ? "middle" : Math.sin(angle) > 0 ? "start" : "end";
  const [x, y] = at(angle, radius + size + (lean === "middle" ? 15 : 9));
  const isInside = view.whole && size > 9;
  name.setAttribute("class", `name ${isInside ? (keeps ? "keeps" : "") : "beside"}`);
  name.setAttribute("text-anchor", isInside ? "middle" : lean);
  place(name, isInside ? [spot[0], spot[1] + 5] : [x, y + 5]);
  say(name, isInside ? peer.label : view.whole ? "" : short(peer, view));
  line.setAttribute("text-anchor", lean);
  place(line, [x, y + (view.whole ? 4 : y < CENTRE ? -10 : 20)]);
  const word = fault(peer);
  line.setAttribute("class", word ? "places word" : "places");
  say(line, word || places || "");
  const called = view.whole ? `Peer ${peer.label}, ${peer.address}` : `${peer.label}, ${peer.address}`;
  say(title, called + (word ? `, ${word}` : "") + (keeps ? ", coordinator" : ""));
}

function drawPeers(view, resource, where) {
  const { radius, spots } = where;
  const places = placesOf(resource);
  const all = [...spots.values()];
  each(peers, all, ({ peer }) => peer.peer, makePeer, (group, spot) => {
    const { peer } = spot.peer;
    drawPeer(group, spot, view, peer === resource.keeper, places.get(peer), where);
  });
  // A dot marks the true position of a peer that was moved.
  const moved = ({ peer, angle }) => 2 * radius * Math.abs(Math.sin(Math.PI * peer.place - angle / 2));
  const displaced = all.filter((spot) => moved(spot) > 1);
  each(ticks, displaced, ({ peer }) => peer.peer, () => svg("circle", { r: 2.5 }), (dot, { peer }) => {
    place(dot, at(peer.place * 2 * Math.PI, radius), ["cx", "cy"]);
  });
}

function drawPointers(resource, { radius, size, spots }) {
  const known = resource.pointers.filter(({ from, to }) => spots.has(from) && spots.has(to));
  each(pointers, known, ({ from }) => from, () => svg("path", { class: "pointer" }), (path, { from, to }) => {
    const [start, end] = [from, to].map((peer) => at(spots.get(peer).angle, radius));
    path.setAttribute("d", arrow(start, end, 0.55, size + 3, size + 5));
  });
}

// A token with the number of its slot, centred at the origin.
export function makeToken(slot) {
  return svg("g", {}, svg("circle", { r: 9 }), svg("text", { y: 4, "text-anchor": "middle" }, String(slot)));
}

function drawTokens(view, resource, { radius, size, spots }) {
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
  each(tokens, placed, ({ token }) => token.slot, ({ token }) => makeToken(token.slot), (group, one) => {
    const [x, y] = spot(one);
    group.setAttribute("class", `token ${colour(one.token.slot)}${one.token.free ? " free" : ""}${isLost(view, one.token) ? " lost" : ""}`);
    group.style.transform = `translate(${round(x)}px, ${round(y)}px)`;
  });
  const going = placed.filter(({ token }) => token.next && token.next !== token.peer && spots.has(token.next) && !isLost(view, token));
  each(nexts, going, ({ token }) => token.slot, () => svg("path"), (path, one) => {
    const end = at(spots.get(one.token.next).angle, radius);
    path.setAttribute("class", `next ${colour(one.token.slot)}`);
    path.setAttribute("d", arrow(spot(one), end, 0.3, 12, size + 5));
  });
}

export function drawRing(view, resource) {
  const where = layout(view);
  ring.setAttribute("r", where.radius);
  drawPeers(view, resource, where);
  drawPointers(resource, where);
  drawTokens(view, resource, where);
  const name = (peer) => where.spots.get(peer)?.peer.label ?? "unknown";
  const tokensAt = resource.tokens.map((token) => `token ${token.slot} at ${name(token.peer)}`).join(", ");
  const keeper = `coordinator ${name(resource.keeper)}`;
  picture.setAttribute("aria-label", `${view.peers.length} peers on a ring; ${keeper}; ${tokensAt}`);
}
