// Elements. Text from records only ever becomes a text node or an attribute's value, never markup.

const SVG = "http://www.w3.org/2000/svg";

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== ""));
  return node;
}

function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

// Nothing where there is nothing to choose.
function choice(label, options, chosen, onchange) {
  if (options.length < 2) return null;
  const select = el("select", { onchange: () => onchange(select.value) });
  for (const option of options) {
    const { value, text } = typeof option === "string" ? { value: option, text: option } : option;
    select.append(el("option", { value, selected: value === chosen }, text));
  }
  return el("label", { class: "choice" }, el("span", {}, label), select);
}

// A plain table: what plots say in text, and what the small views are.
function plainTable(caption, table) {
  const heads = el("tr", {}, table.heads.map((text) => el("th", { scope: "col" }, text)));
  const body = table.rows.map(([first, ...others]) =>
    el("tr", {}, el("th", { scope: "row" }, first.text), others.map((cell) => el("td", {}, cell.text))));
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    el("table", {}, el("thead", {}, heads), el("tbody", {}, body)));
}

function save(name, text, type) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  el("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

// The clipboard is not there for every address that a page may have; a selection always is.
async function copy(text, button) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = el("textarea", { class: "unseen" });
    area.value = text;
    button.after(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    button.focus();
  }
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = before), 1500);
}
