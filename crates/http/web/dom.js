// Elements without markup: whatever clients call themselves is text.

const SVG = "http://www.w3.org/2000/svg";

// What the address says behind its `#`, as `key=value&…`: the bearer token, and the resource that was chosen.
export const said = () => new URLSearchParams(location.hash.slice(1));

// What proves to know the token, where one is wanted.
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

// Sets a text only if it is another one, so that nothing is drawn or read out in vain.
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// One child of `parent` for each item, kept as long as the item's key is there, in the order of the items. Whoever is
// on one of them by keyboard stays there: an element that is moved is taken out for a moment, and loses that otherwise.
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

// As people say it: the less exact, the longer it is.
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
