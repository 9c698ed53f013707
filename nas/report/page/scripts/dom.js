// Elements. A text of a record becomes a text node, its control characters spelled out.

const UNPRINTABLE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069\p{Cs}]/gu;
const SVG = "http://www.w3.org/2000/svg";

/** The text with every control character and mark of direction spelled out, as \u202e. */
function printable(text) {
  const spelled = (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return String(text).replace(UNPRINTABLE, spelled);
}

/** An HTML element; attributes that begin with "on" are listeners, null ones are left out. */
function html(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

function svg(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if ((value ?? false) !== false) element.setAttribute(name, value === true ? "" : printable(value));
  }
  element.append(...nodes(children));
  return element;
}

/** Children as nodes: lists are flattened, null and false left out, the rest is text. */
function nodes(children) {
  const shown = children.flat(Infinity).filter((child) => (child ?? false) !== false);
  return shown.map((child) => (child instanceof Node ? child : document.createTextNode(printable(child))));
}

function save(name, text, type = "text/plain") {
  const address = URL.createObjectURL(new Blob([text], { type: `${type};charset=utf-8` }));
  html("a", { href: address, download: name.replace(/[^\w.+-]+/g, "_") }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
