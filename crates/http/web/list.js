// The list of resources: filtered by the search text, stalled ones first, numbers in names in numeric order.

import { count, each, html, say } from "/assets/dom.js";

// Limit of the list; others are found by searching.
const LISTED = 200;
const list = document.getElementById("list");
const search = document.getElementById("search");
const rest = document.getElementById("rest");
// Below this many, no search is offered.
const FEW = 8;

// Stalled ones first; `backup-2` before `backup-10`.
const people = new Intl.Collator("en", { numeric: true });
function inOrder(one, other) {
  return Boolean(other.problem) - Boolean(one.problem) || people.compare(one.name, other.name);
}

function make({ name }, choose) {
  const button = html("button", { type: "button" }, html("span", { class: "label" }, name), html("span", { class: "many" }));
  button.addEventListener("click", () => choose(name));
  return button;
}

function update(button, { name, slots, inside, waiting, problem }, chosen, whose) {
  const many = button.children[1];
  button.setAttribute("aria-pressed", name === chosen);
  button.classList.toggle("problem", Boolean(problem));
  say(many, `${inside}/${slots ?? "?"}${waiting ? ` · ${count(waiting)}` : ""}`);
  const use = `${name}: ${inside} of ${slots ?? "?"} slots in use${whose}, ${count(waiting)} waiting`;
  const title = problem ? `${use}. ${problem}` : use;
  if (button.title !== title) button.title = title;
}

export function drawList(view, chosen, choose) {
  const wanted = search.value.trim().toLowerCase();
  const found = view.resources.filter(({ name }) => name.toLowerCase().includes(wanted)).sort(inOrder);
  const whose = view.whole ? "" : " by clients of this agent";
  search.hidden = view.resources.length < FEW && !wanted;
  each(list, found.slice(0, LISTED), ({ name }) => name, (one) => make(one, choose), (button, one) => {
    update(button, one, chosen, whose);
  });
  const more = found.length - LISTED;
  say(rest, more > 0 ? `and ${count(more)} more: use the search` : found.length ? "" : "No match.");
}

// Calls `draw` when the search text changes.
export function onSearch(draw) {
  search.addEventListener("input", draw);
}
