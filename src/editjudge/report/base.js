"use strict";
// What all parts of the page use: elements, numbers as text, files of data/, the theme, and tables.
// The page's scripts stand one after another in one script: base, charts, board, results, graph, pair, first, gallery,
// compare, page. What the page shows is data of others: it is put in as text (textContent, setAttribute), never as HTML.
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";

function make(name, attributes = {}, ...children) {
  const svg = ["svg", "rect", "polygon", "path", "text", "g", "title"].includes(name);
  const node = svg ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "style") Object.entries(value).forEach(([name, each]) => node.style.setProperty(name, each));
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}
const words = (text) => String(text).replaceAll("_", " ");
const own = (text) => make("bdi", {}, String(text));
const show = (value, digits = 3) => (value === null || value === undefined ? "–" : Number(value).toFixed(digits).replace(/^-(0(\.0+)?)$/, "$1"));
const short = (value) => (value === null || value === undefined ? "–" : String(Number(Number(value).toPrecision(4))));
const known = (value) => value !== null && value !== undefined;
const interval = (row, digits = 3) =>
  !known(row.value) ? "–" : !known(row.low) ? show(row.value, digits) : `${show(row.value, digits)} (${show(row.low, digits)} to ${show(row.high, digits)})`;
const percent = (value) => `${show(100 * value, 0)}\u00a0%`; // the sign stays beside its number
const counted = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
const nothing = (text) => make("p", { class: "note" }, text);
const body = (id) => $(id).querySelector(":scope > div");
const scroll = (label, node) => make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, node);

function rangeBar(row, [least, most], mark = null) {
  // A point with its interval on a scale that all rows share. mark: where a dashed line stands, such as chance.
  if (!known(row.value)) return make("span", { class: "range" });
  const at = (value) => `${(100 * (Math.min(Math.max(value, least), most) - least)) / Math.max(most - least, 1e-9)}%`;
  return make("span", { class: "range", "aria-hidden": "true" },
    known(mark) ? make("u", { style: { left: at(mark) } }) : null,
    known(row.low) ? make("i", { style: { left: at(row.low), right: `calc(100% - ${at(row.high)})` } }) : null,
    make("b", { style: { left: at(row.value) } }));
}

// --- files of data/, each loaded once
// A page that is opened as a file may not fetch: each of these files is a script that calls take().

const loading = new Map();
const arrived = new Map();
function take(name, value) {
  arrived.set(name, value);
}
function load(name) {
  if (!loading.has(name)) loading.set(name, new Promise((done, failed) => {
    const script = make("script", { src: `data/${name}.js`, onload: () => done(arrived.get(name)),
      onerror: () => failed(new Error(`data/${name}.js is not beside this page`)) });
    document.head.append(script);
  }));
  return loading.get(name);
}

// --- light and dark

const stored = (() => { try { return localStorage.getItem("theme"); } catch { return null; } })();
function setTheme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  $("theme").setAttribute("aria-pressed", String(dark));
  charts.forEach((chart) => chart.draw());
}
function startTheme() {
  const system = matchMedia("(prefers-color-scheme: dark)");
  setTheme(stored ? stored === "dark" : system.matches);
  system.addEventListener("change", () => stored || setTheme(system.matches));
  $("theme").addEventListener("click", () => {
    const dark = document.documentElement.dataset.theme !== "dark";
    setTheme(dark);
    try { localStorage.setItem("theme", dark ? "dark" : "light"); } catch { /* a page of a file may not */ }
  });
}

// --- tables that can be sorted

function table(columns, rows, options = {}) {
  // columns: {name, title, text, cell(row), sort(row), header, kind}; rows in the order that is shown first.
  // text: to the left. header: it names its row, else the first column does. kind: a class of its cells.
  // A phone shows the rows of a table that is not of a kind of its own one beneath the other. The roles stay then.
  let order = null;
  const header = Math.max(0, columns.findIndex((column) => column.header));
  const titleOf = (column) => (typeof column.title === "string" ? column.title : column.title.textContent) || null;
  const classes = (column) => [column.text ? "text" : "", column.long ? "long" : "", column.kind || ""].join(" ").trim() || null;
  const head = columns.map((column) => {
    const label = options.sortable && column.sort ? make("button", { type: "button", onclick: () => sortBy(column) }, column.title) : column.title;
    return column.title === "" ? make("td", { class: classes(column), role: "cell" }) : make("th", { scope: "col", class: classes(column), role: "columnheader" }, label);
  });
  const content = make("tbody", { role: "rowgroup" });
  function fill() {
    const shown = order ? [...rows].sort((a, b) => order.sign * compare(order.column.sort(a), order.column.sort(b))) : rows;
    content.replaceChildren(...shown.map((row) => make("tr", { role: "row" }, columns.map((column, n) =>
      make(n === header ? "th" : "td", { class: classes(column), scope: n === header ? "row" : null, role: n === header ? "rowheader" : "cell", "data-title": titleOf(column) }, column.cell(row))))));
    head.forEach((cell, n) => {
      if (order && columns[n] === order.column) cell.setAttribute("aria-sort", order.sign > 0 ? "ascending" : "descending");
      else cell.removeAttribute("aria-sort");
    });
  }
  function sortBy(column) {
    order = { column, sign: order && order.column === column ? -order.sign : column.text ? 1 : -1 };
    fill();
  }
  fill();
  const whole = scroll(options.label, make("table", { class: options.kind || "stacks", role: "table" }, make("thead", { role: "rowgroup" }, make("tr", { role: "row" }, head)), content));
  return options.caption ? make("div", {}, make("p", { class: "note" }, options.caption), whole) : whole;
}
function compare(a, b) {
  if (a === null || a === undefined) return b === null || b === undefined ? 0 : -1;
  if (b === null || b === undefined) return 1;
  return typeof a === "string" ? a.localeCompare(b, "en") : a - b;
}
const column = (name, title, digits, extra = {}) =>
  ({ name, title, cell: (row) => show(row[name], digits), sort: (row) => row[name], ...extra });
const named = (name, title, extra = {}) =>
  ({ name, title, text: true, cell: (row) => own(row[name] ?? "–"), sort: (row) => row[name], ...extra });

function choice(title, options, onchange) {
  // options: [value, text]
  const select = make("select", { onchange: () => onchange(select.value) }, options.map(([value, text]) => make("option", { value }, text)));
  return { label: make("label", {}, title, select), select };
}

