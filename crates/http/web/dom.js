// Creates elements without parsing markup: labels of clients are text.

const SVG = "http://www.w3.org/2000/svg";

// The parameters behind the `#` of the address: bearer token and selected resource.
export const said = () => new URLSearchParams(location.hash.slice(1));

// The header with the bearer token, if there is one.
export function proof() {
  const token = said().get("token");
  return token ? { authorization: `Bearer ${token}` } : {};
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export function html(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

// Sets a text only if it differs, so that nothing is redrawn or read out needlessly.
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// Keeps one child of `parent` per item, identified by key, in the order of the items. Restores the keyboard focus,
// which an element loses when it is moved.
export function each(parent, items, key, make, update) {
  const focused = document.activeElement;
  const named = items.map((item) => [String(key(item)), item]);
  const names = new Set(named.map(([name]) => name));
  const before = new Map();
  for (const child of [...parent.children]) {
    if (names.has(child.dataset.key)) before.set(child.dataset.key, child);
    else child.remove();
  }
  let place = parent.firstElementChild;
  for (const [name, item] of named) {
    const child = before.get(name) ?? make(item);
    child.dataset.key = name;
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
    update(child, item);
  }
  if (focused !== document.activeElement && parent.contains(focused)) focused.focus({ preventScroll: true });
}

// Formats a duration, with less precision the longer it is.
export function duration(ms) {
  if (ms == null) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 9_950) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 100) return `${seconds} s`;
  const [minutes, hours] = [Math.round(seconds / 60), Math.round(seconds / 3600)];
  if (minutes < 100) return `${minutes} min`;
  return hours < 48 ? `${hours} h` : `${Math.round(hours / 24)} days`;
}

const counted = new Intl.NumberFormat("en");
export const count = (number) => counted.format(number);
