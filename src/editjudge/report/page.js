"use strict";
// What the page shows is data of others: it is put in as text (textContent, setAttribute), never as HTML.
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
const interval = (row, digits = 3) =>
  row.value === null ? "–" : row.low === null || row.low === undefined ? show(row.value, digits) : `${show(row.value, digits)} (${show(row.low, digits)} to ${show(row.high, digits)})`;
const nothing = (text) => make("p", { class: "note" }, text);
const body = (id) => $(id).querySelector(":scope > div");
const scroll = (label, node) => make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, node);

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
  // columns: {name, title, text, cell(row), sort(row)}; rows in the order that is shown first.
  let order = null;
  const head = columns.map((column) => {
    const label = options.sortable && column.sort ? make("button", { type: "button", onclick: () => sortBy(column) }, column.title) : column.title;
    return make("th", { scope: "col", class: column.text ? "text" : null }, label);
  });
  const content = make("tbody");
  function fill() {
    const shown = order ? [...rows].sort((a, b) => order.sign * compare(order.column.sort(a), order.column.sort(b))) : rows;
    content.replaceChildren(...shown.map((row) => make("tr", {}, columns.map((column, n) =>
      make(n ? "td" : "th", { class: [column.text ? "text" : "", column.long ? "long" : ""].join(" ").trim() || null, scope: n ? null : "row" }, column.cell(row))))));
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
  const whole = scroll(options.label, make("table", {}, make("thead", {}, make("tr", {}, head)), content));
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

// --- charts

const charts = [];
const COLOURS = { light: ["#1f5fbf", "#c2571a", "#1b7a3d", "#7b4fb5", "#8a6d1a", "#4f5964"], dark: ["#82b1ff", "#ffb074", "#7fd69b", "#c8a8ff", "#e0c266", "#b4bcc5"] };
function config() {
  const style = getComputedStyle(document.documentElement);
  const [fg, soft, line] = ["--fg", "--soft", "--line"].map((name) => style.getPropertyValue(name).trim());
  const palette = COLOURS[document.documentElement.dataset.theme];
  return {
    background: "transparent", font: getComputedStyle(document.body).fontFamily, view: { stroke: null },
    axis: { labelColor: soft, titleColor: soft, gridColor: line, domainColor: line, tickColor: line, titleFontWeight: "normal", labelFontSize: 11, titleFontSize: 11, tickCount: 5, labelLimit: 140 },
    legend: { labelColor: fg, title: null, orient: "top", labelFontSize: 12, labelLimit: 240 },
    range: { category: palette }, mark: { color: palette[0], tooltip: true }, rule: { color: palette[0] },
    point: { size: 45 }, line: { strokeWidth: 2 }, area: { color: palette[0] },
  };
}
const seen = new IntersectionObserver((entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => {
  seen.unobserve(entry.target);
  const chart = charts.find((each) => each.node === entry.target);
  chart.near = true;
  chart.draw();
}), { rootMargin: "300px" });

function chart(given) {
  const node = make("div", { class: "chart", role: "img", "aria-label": `${given.title}. ${given.note}`, style: { "--tall": `${typeof given.spec.height === "number" ? given.spec.height + 60 : 120}px` } });
  const state = { node, near: false, view: null, async draw() {
    if (!state.near || !window.vegaEmbed) return;
    const spec = { ...given.spec, width: "container", autosize: { type: "fit-x", contains: "padding" } };
    const found = await vegaEmbed(node, spec, { ast: true, actions: false, renderer: "svg", logLevel: 1, config: config() });
    if (state.view) state.view.finalize();
    state.view = found.view;
    node.querySelectorAll("svg").forEach((svg) => svg.setAttribute("aria-hidden", "true"));
  } };
  charts.push(state);
  const rows = given.spec.data.values;
  const columns = Object.keys(rows[0] || {}).map((name) => typeof rows[0][name] === "number" || rows[0][name] === null
    ? { name, title: words(name), cell: (row) => short(row[name]) } : named(name, words(name)));
  const details = make("details", { ontoggle: () => details.childElementCount > 1 || details.append(table(columns, rows, { label: given.title })) }, make("summary", {}, "As a table"));
  seen.observe(node);
  return make("figure", {}, make("h3", {}, own(given.title)), make("p", { class: "note" }, given.note), node, details);
}
function smallCharts(given) {
  const figures = given.map(chart);
  figures.forEach((figure) => figure.querySelector("p").remove());
  return [make("p", { class: "note" }, given[0].note), make("div", { class: "figures small" }, figures)];
}

// --- results

function leaderboard(boards) {
  if (!boards.length) return [nothing("There is no leaderboard here: dvc repro leaderboard makes it.")];
  const place = make("div");
  let judge = 0, part = 0;
  const judges = choice("Judge", boards.map((board, n) => [n, board.judge]), (value) => { judge = +value; fillParts(); fill(); });
  const parts = choice("Task or dimension", [], (value) => { part = +value; fill(); });
  parts.select.id = "part";
  function fillParts() {
    const before = boards[judge].parts[part];
    part = Math.max(0, boards[judge].parts.findIndex((each) => before && each.kind === before.kind && each.name === before.name));
    parts.select.replaceChildren(...boards[judge].parts.map((each, n) =>
      make("option", { value: n, selected: n === part }, each.kind ? `${each.kind}: ${words(each.name)}` : "all")));
  }
  function fill() {
    const board = boards[judge].parts[part];
    const ends = board.models.flatMap((row) => [row.rating, row.low, row.high]).filter((value) => value !== null);
    const [least, most] = [Math.min(...ends), Math.max(...ends)];
    const at = (value) => `${(100 * (value - least)) / Math.max(most - least, 1e-9)}%`;
    const range = (row) => make("span", { class: "range", "aria-hidden": "true" },
      row.low === null ? null : make("i", { style: { left: at(row.low), right: `calc(100% - ${at(row.high)})` } }),
      make("b", { style: { left: at(row.rating) } }));
    const columns = [
      named("model", "Model"),
      column("rating", "Rating", 0),
      { title: "95 % interval", cell: (row) => (row.low === null ? "–" : `${show(row.low, 0)} to ${show(row.high, 0)}`) },
      { title: "", cell: range },
      column("rank", "Rank", 0),
      { title: "Ranks", cell: (row) => (row.rank_low === null ? "–" : `${row.rank_low} to ${row.rank_high}`), sort: (row) => row.rank_high },
      column("matches", "Matches", 0),
    ];
    if (board.models.some((row) => row.known_damage !== null && row.known_damage !== undefined)) columns.push(column("known_damage", "Known damage (ΔE)", 2));
    const counts = boards[judge].counts;
    const caption = part ? `${words(board.name)}, by ${boards[judge].judge}` :
      `${counts.matches} matches, ${counts.ties} ties, ${counts.unscored} without a verdict; ${counts.clusters} photos` +
      (counts.gated ? `; ${counts.gated} wins of edits that followed the instruction less count as ties` : "") +
      (counts.kendall_tau === null ? "" : `; Kendall's tau with the known order ${show(counts.kendall_tau, 2)}`);
    place.replaceChildren(
      board.models.length ? table(columns, board.models, { sortable: true, caption, label: "Leaderboard" }) : nothing(board.reason || "No model is rated."),
      ...board.warnings.map((text) => make("p", { class: "note" }, text)));
  }
  fillParts();
  fill();
  return [
    make("p", { class: "note" }, "Ratings of the editing models with 95 % intervals over photos. Ranks: the range that holds for all models at once."),
    make("div", { class: "fields" }, judges.label, parts.label), place];
}

function winRates(boards) {
  const found = boards.filter((board) => board.win_rates);
  if (!found.length) return [nothing("There are no win rates here: dvc repro leaderboard makes them.")];
  const place = make("div");
  function fill(n) {
    const { models, rates } = found[n].win_rates;
    const cell = (rate) => rate === null ? make("td", {}, "–") : make("td", { style: {
      background: `color-mix(in srgb, var(${rate >= 0.5 ? "--win" : "--lose"}) ${Math.round(90 * Math.abs(rate - 0.5))}%, var(--bg))` } }, show(rate, 2));
    const rows = rates.map((row, n) => make("tr", {}, make("th", { scope: "row", class: "text" }, own(models[n])), row.map(cell)));
    const head = make("tr", {}, make("td", {}), models.map((model) => make("th", { scope: "col" }, own(model))));
    place.replaceChildren(scroll("Win rates", make("table", { class: "heat" }, make("thead", {}, head), make("tbody", {}, rows))));
  }
  const judges = choice("Judge", found.map((board, n) => [n, board.judge]), (value) => fill(+value));
  fill(0);
  return [make("p", { class: "note" }, "How often the model of the row wins against that of the column, ties as halves. Blue: more than one half."),
    make("div", { class: "fields" }, judges.label), place];
}

function others(bench) {
  // What papers print, and chance, as rows of the table of judges.
  const published = Object.entries(bench.published?.judges || {}).map(([name, value]) => ({ judge: `${name}, published`, mean_over_tasks: { value } }));
  const guess = bench.chance === null ? [] : [{ judge: "chance", accuracy: { value: bench.chance }, mean_over_tasks: { value: bench.chance }, position: { value: 0.5 } }];
  return [...published, ...guess].map((row) => ({ accuracy: { value: null }, position: { value: null }, ...row }));
}

function judgeTables(benchmarks, figures) {
  if (!benchmarks.length) return [nothing("No judge was measured: dvc repro judge_benchmark does it.")];
  const blocks = benchmarks.map((bench) => {
    const columns = [
      named("judge", "Judge"),
      { title: "Accuracy", cell: (row) => interval(row.accuracy), sort: (row) => row.accuracy.value },
      { title: "Mean over tasks", cell: (row) => interval(row.mean_over_tasks), sort: (row) => row.mean_over_tasks.value },
      { title: "Consistent", cell: (row) => show(row.consistency), sort: (row) => row.consistency },
      { title: "First preferred", cell: (row) => interval(row.position), sort: (row) => row.position.value },
      { title: "Threshold (ΔE)", cell: (row) => (row.threshold ? show(row.threshold.threshold, 2) : "–"), sort: (row) => row.threshold?.threshold },
      { title: "Scored", cell: (row) => (row.scored === row.n ? row.n ?? "–" : `${row.scored} of ${row.n}`), sort: (row) => row.scored },
    ];
    const parts = [make("h3", {}, own(bench.benchmark)),
      table(columns, [...bench.rows, ...others(bench)], { sortable: true, label: `Judges on ${bench.benchmark}`,
        caption: `${bench.items} pairs, each asked in both orders; 95 % intervals over photos. Consistent: the same verdict in both orders. First preferred: the image shown first; one half is no bias. Threshold: the gap of damage at which it is halfway from guessing to its best` })];
    if (bench.published) parts.push(make("p", { class: "note" }, `Published rows are of ${bench.published.name}: of other pairs than these, unless this is that benchmark.`));
    if (bench.differences.length) parts.push(table([
      { title: "Judges", text: true, cell: (row) => [own(row.first), " less ", own(row.second)] },
      { title: "Difference of accuracy", cell: (row) => interval({ value: row.difference, low: row.low, high: row.high }) },
      { title: "p (Holm)", cell: (row) => show(row.p) },
    ], bench.differences, { caption: "Paired differences", label: `Differences on ${bench.benchmark}` }));
    return parts;
  });
  return [...blocks.flat(), make("div", { class: "figures" }, figures.map(chart))];
}

function training(results) {
  const { base, pairs, figures } = results;
  const parts = [];
  if (base.length) {
    const say = (row) => row.low > 0 ? "The pairs made it better." : row.high < 0 ? "The pairs made it worse." : "The interval holds 0: no gain is shown.";
    parts.push(...base.map((row) => make("p", {}, own(row.judge), ` less its base on `, own(row.benchmark), `: accuracy ${interval({ value: row.difference, low: row.low, high: row.high })}. ${say(row)}`)));
  } else parts.push(nothing("No judge was trained, or its base was not measured beside it."));
  parts.push(make("div", { class: "figures" }, figures.map(chart)));
  if (pairs.length) parts.push(make("h3", {}, "Training pairs"), table(Object.keys(pairs[0]).map((name) => name === "task" ? named(name, "Task") :
    column(name, words(name), name === "share_right" ? 3 : 0)), pairs, { sortable: true, label: "Training pairs",
    caption: "Pairs by task, the share that names the truly less damaged edit, and why other pairs were dropped" }));
  return parts;
}

function graph(stages) {
  const nodes = stages.filter((node) => node.items !== 0);
  if (!nodes.length) return [nothing("dvc.yaml is not here.")];
  const [wide, tall, gapX, gapY] = [150, 38, 22, 30];
  const depths = Math.max(...nodes.map((node) => node.depth)) + 1;
  const rows = Array.from({ length: depths }, (_, depth) => nodes.filter((node) => node.depth === depth));
  const most = Math.max(...rows.map((row) => row.length));
  const width = most * (wide + gapX), height = depths * (tall + gapY);
  const at = new Map();
  const over = (node) => node.reads.filter((name) => at.has(name)).map((name) => at.get(name)[0]).reduce((sum, x, _, all) => sum + x / all.length, 0);
  rows.forEach((row, depth) => {
    if (depth) row.sort((a, b) => over(a) - over(b));
    row.forEach((node, n) => at.set(node.name, [width / 2 + (n - (row.length - 1) / 2) * (wide + gapX), depth * (tall + gapY) + 4]));
  });
  const lines = nodes.flatMap((node) => node.reads.filter((name) => at.has(name)).map((other) => {
    const [x0, y0] = at.get(other), [x1, y1] = at.get(node.name), middle = (y0 + tall + y1) / 2;
    return make("path", { d: `M${x0} ${y0 + tall} C${x0} ${middle} ${x1} ${middle} ${x1} ${y1}` });
  }));
  const boxes = nodes.map((node) => {
    const [x, y] = at.get(node.name);
    const label = node.items === null ? node.name : `${node.name} ×${node.items}`;
    return make("g", {}, make("title", {}, node.desc), make("rect", { x: x - wide / 2, y, width: wide, height: tall, rx: 6 }),
      make("text", { x, y: y + (node.records ? 17 : 23), "text-anchor": "middle" }, label),
      node.records ? make("text", { x, y: y + 31, "text-anchor": "middle", class: "count" }, `${node.records} records`) : null);
  });
  const columns = [named("name", "Stage"), { title: "What it does", text: true, long: true, cell: (row) => row.desc },
    { title: "Items", cell: (row) => show(row.items, 0) }, { title: "Records", cell: (row) => show(row.records, 0) },
    { title: "Reads", text: true, long: true, cell: (row) => row.reads.join(", ") || "–" }];
  const details = make("details", {}, make("summary", {}, "As a table"), table(columns, stages, { label: "Stages" }));
  return [make("p", { class: "note" }, "The stages of dvc.yaml, each beneath what it reads; how many records each wrote."),
    scroll("The graph", make("svg", { class: "dag", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": "The stages and what they read; the table has the same" }, lines, boxes)), details];
}

// --- images

const image = (number) => (number === null || number === undefined ? null : data.images[number]);
function picture(row, alt, lazy) {
  if (!row) return make("span", { class: "none" }, "no image here");
  const node = make("img", { alt, loading: lazy ? "lazy" : null, decoding: "async", width: row.width, height: row.height });
  if (row.thumb) node.style.backgroundImage = `url("${row.thumb}")`;
  node.addEventListener("error", () => { if (row.thumb && node.src !== row.thumb) node.src = row.thumb; }, { once: true });
  node.src = row.file;
  return node;
}
const LAYERS = { boxes: "Boxes", masks: "Masks", area: "Where the edit is", faces: "Faces", joints: "Joints" };
const hidden = new Set();
function shapeOf(name, shape) {
  // A polygon of points, a box x0, y0, x1, y1 or a point x, y.
  if (Array.isArray(shape[0])) return make("polygon", { class: name, points: shape.map((point) => point.join(",")).join(" ") });
  const [x, y, right, bottom] = shape;
  return shape.length === 4 ? make("rect", { class: name, x, y, width: right - x, height: bottom - y }) : make("path", { class: name, d: `M${x} ${y}h0` });
}
function marks(layers, row) {
  const shapes = Object.keys(LAYERS).filter((name) => !hidden.has(name)).flatMap((name) => (layers[name] || []).map((shape) => shapeOf(name, shape)));
  return shapes.length ? make("svg", { viewBox: `0 0 ${row.width} ${row.height}`, preserveAspectRatio: "none", "aria-hidden": "true" }, shapes) : null;
}

// --- one pair

const WHY = {
  made: "It is a training pair.",
  same_tier: "Dropped: both edits are of the same tier.",
  mode: "Dropped: the mode head_tail keeps elite over failure alone.",
  margin: "Dropped: the better edit's z is ahead by less than the margin.",
  pareto: "Dropped: a primary measure speaks against it.",
  votes: "Dropped: the secondary measures do not vote for the better tier.",
  no_secondary_comparable: "Dropped: both edits have no secondary measure in common.",
  beyond_cap: "Dropped: its task has enough prompts.",
  stands: "It stands: train_pairs makes it a training pair.",
  failed: "Dropped: an edit failed, or no judge gave a verdict.",
  unasked: "Dropped: no judge was asked.",
  unedited: "Dropped: an edit changed next to nothing.",
  unscored: "Dropped: a primary measure has no value.",
  tie: "Dropped: the judges see a tie.",
  unedited_or_beyond_cap: "Dropped: an edit changed next to nothing, or its task has enough prompts.",
};
const SIDE = { A: "A", B: "B", T: "tie" };
const side = (code) => SIDE[code] || "–";

function verdictState(pair) {
  const won = pair.judged.map((each) => each[4]).filter(Boolean);
  return {
    wrong: Boolean(pair.truth) && (won.some((code) => code !== pair.truth) || Boolean(pair.made && pair.winner && pair.winner !== pair.truth)),
    disagree: new Set(won).size > 1,
    order: pair.judged.some((each) => each[2] && each[3] && each[2] !== each[3]),
    failed: ["failed", "unscored", "unasked"].includes(pair.why) || won.length < pair.judged.length,
  };
}

const dash = (value) => (value === null || value === undefined ? null : value);
function measuresTable(prompt, shown, every) {
  // shown: [edit, what it is called]; every: a column an edit, the best and the worst that count in colour.
  const columns = data.tasks[prompt.task]?.measures || [];
  if (!columns.length || !shown.every(([edit]) => edit.values)) return null;
  const rows = columns.map((each, n) => ({ ...each, values: shown.map(([edit]) => dash(edit.values[n])), z: shown.map(([edit]) => dash(edit.z?.[n])), why: shown.map(([edit]) => edit.missing?.[n]) }))
    .filter((row) => row.values.some((value) => value !== null) || row.why.some(Boolean));
  const given = [
    { title: "Measure", text: true, cell: (row) => `${row.measure} ${row.direction > 0 ? "↑" : "↓"}${row.role ? ` (${row.role})` : ""}` },
    { title: "Area", text: true, cell: (row) => words(row.area || "image") },
  ];
  const zs = rows.some((row) => row.z.some((value) => value !== null));
  if (every) {
    const ends = (row) => { const known = row.z.filter((value) => value !== null); return [Math.min(...known), Math.max(...known)]; };
    given.push(...shown.map(([, name], n) => ({ title: own(name), cell: (row) => {
      if (row.values[n] === null) return make("span", { class: "soft" }, own(row.why[n] || "–"));
      const [worst, best] = ends(row), z = row.z[n];
      return make("span", { class: z === null || worst === best ? null : z === best ? "good" : z === worst ? "bad" : null }, short(row.values[n]) + (z === null ? "" : ` (${show(z, 2)})`));
    } })));
  } else {
    const better = ({ values: [a, b], direction, why }) => {
      if (a === null || b === null) return why.find(Boolean) || "not measured";
      const gain = direction * (a - b);
      return gain === 0 ? "equal" : gain > 0 ? "A" : "B";
    };
    given.push(...["A", "B"].map((title, n) => ({ title, cell: (row) => short(row.values[n]) })));
    if (zs) given.push(...["A", "B"].map((code, n) => ({ title: `z of ${code}`, cell: (row) => show(row.z[n], 2) })));
    given.push({ title: "Better", text: true, cell: better });
  }
  const note = `↑ higher is better, ↓ lower.${zs ? ` z${every ? " in brackets" : ""}: among the prompt's edits, higher is better.` : ""}${every ? " Green: the best of the edits that count, red: the worst." : ""}`;
  return [make("h3", {}, "Measures"), make("p", { class: "note" }, note), table(given, rows, { label: "Measures" })];
}

function ruleOf(pair, prompt, a, b) {
  if (!pair.why) return null;
  const sure = (edit) => (edit.tier ? `${words(edit.tier)}${edit.total === null || edit.total === undefined ? "" : `, z ${show(edit.total, 2)}`}` : null);
  const lines = [];
  if (a.tier || b.tier) lines.push(`A: ${sure(a) || "no tier"}. B: ${sure(b) || "no tier"}.`);
  lines.push((pair.tiers ? `${words(pair.tiers)}${pair.margin === undefined || pair.margin === null ? "" : `, ahead by ${show(pair.margin, 2)}`}. ` : "") + (WHY[pair.why] || words(pair.why)));
  const { rules = [], least_change: least } = data.tasks[prompt.task] || {};
  if (least) lines.push(`An edit that changes by less than ${short(least)} ΔE where it must show counts as unedited.`);
  return [make("h3", {}, "Rule"), ...lines.map((line) => make("p", {}, line)),
    ...rules.map((rule) => make("p", { class: "note" }, `${words(rule.area)}: primary ${rule.primary}; elite above z ${rule.elite}, failure at or below ${rule.failure}; votes: ${rule.secondary.join(", ") || "none"}`))];
}

function verdictTable(pair) {
  if (!pair.judged.length) return null;
  const sure = (p) => (p === null || p === undefined ? "" : ` (p(A) ${show(p)})`);
  const columns = [
    { title: "Judge", text: true, cell: (row) => own(data.judges[row[0]]) },
    { title: "A shown first", text: true, cell: (row) => side(row[2]) + sure(row[7]) },
    { title: "B shown first", text: true, cell: (row) => side(row[3]) + sure(row[8]) },
    { title: "Both orders", text: true, cell: (row) => side(row[4]) },
    { title: "p(A wins)", cell: (row) => show(row[5]) },
  ];
  if (pair.truth) columns.push({ title: "Right", text: true, cell: (row) => (row[4] === null ? "–" : row[4] === pair.truth ? "yes" : "no") });
  if (pair.judged.some((row) => row[1])) columns.splice(1, 0, { title: "Asked about", text: true, cell: (row) => words(row[1] || "–") });
  if (pair.judged.some((row) => row[6])) columns.push({ title: "Why no verdict", text: true, long: true, cell: (row) => own(row[6] || "–") });
  return [make("h3", {}, "Judges"), table(columns, pair.judged, { label: "Judges" })];
}

let mode = "side", every = false;
function aspect(source, shown) {
  // By what factor the edit is wider for its height than the source; whole pixels move it a little.
  const factor = source && shown ? (shown.width * source.height) / (shown.height * source.width) : 1;
  return Math.abs(Math.log(factor)) > Math.log(1.02) ? `aspect ratio × ${show(factor, 2)}` : null;
}
function views(pair, shown) {
  // shown: [edit, "A" or "B" or ""].
  const prompt = pair.prompt, source = image(prompt.source);
  const stack = (children, over) => make("div", { class: "stack", style: source ? { "aspect-ratio": `${source.width} / ${source.height}` } : {} }, children, over);
  const over = (edit) => (source ? marks(edit?.layers || prompt.layers, source) : null);
  const figure = (head, content) => make("figure", {}, make("figcaption", {}, head), content);
  const known = (name, value, unit = "") => (dash(value) === null ? null : `${name} ${short(value)}${unit}`);
  const view = ([edit, code]) => {
    const row = image(edit.image), name = code ? `Edit ${code}` : `Edit of ${edit.model}`;
    const said = [edit.tier ? words(edit.tier) : null, dash(edit.total) === null ? null : `z ${show(edit.total, 2)}`, known("change", edit.change), known("known damage", edit.damage, " ΔE"), aspect(source, row), code && pair.truth === code ? (pair.why ? "truly better" : "the better one") : null];
    const head = [make("strong", {}, code ? `${code} ` : ""), own(edit.model), make("span", { class: "soft" }, said.filter(Boolean).join(" · "), row && edit.reason ? [" · ", own(edit.reason)] : null)];
    if (!row) return figure(head, make("span", { class: "none" }, edit.reason ? own(edit.reason) : "no image here"));
    if (!source || mode === "side") return figure(head, stack(picture(row, name), over(edit)));
    if (mode === "difference") {
      const map = image(edit.difference);
      const heat = map ? make("div", {}, picture(map, "")) : make("div", { class: "heatmap" }, picture(source, ""), make("div", { class: "over" }, picture(row, "")));
      heat.setAttribute("role", "img");
      heat.setAttribute("aria-label", `Where ${name} differs from the source`);
      return figure(head, stack(heat, over(edit)));
    }
    const top = make("div", { class: "over" }, picture(row, name));
    const cut = make("span", { class: "cut" });
    const slide = make("input", { type: "range", min: 0, max: 100, value: 50, "aria-label": `${name} up to here, the source beyond`, oninput: () => place() });
    const place = () => { top.style.clipPath = `inset(0 ${100 - slide.value}% 0 0)`; cut.style.left = `${slide.value}%`; };
    place();
    return figure(head, stack([picture(source, "Source"), top], [over(edit), cut, slide].filter(Boolean)));
  };
  const origin = figure([make("strong", {}, "Source"), make("span", { class: "soft" }, source ? `${source.width} × ${source.height}` : "")],
    source ? stack(picture(source, "Source"), over()) : make("span", { class: "none" }, "no image here"));
  return make("div", { class: "views" }, origin, shown.map(view));
}

function pairsOf(prompt) {
  const names = (code, pair) => own(prompt.edits[pair[code]].model);
  const columns = [
    { title: "Pair", text: true, cell: (pair) => [names("a", pair), " and ", names("b", pair)] },
    { title: "Better", text: true, cell: (pair) => (pair.winner === "A" || pair.winner === "B" ? names(pair.winner.toLowerCase(), pair) : side(pair.winner)) },
    { title: "Ahead by", cell: (pair) => show(pair.margin, 2) },
    { title: "Tiers", text: true, cell: (pair) => words(pair.tiers || "–") },
    { title: "What came of it", text: true, long: true, cell: (pair) => WHY[pair.why] || words(pair.why || "–") },
  ];
  return [make("h3", {}, "Pairs of this prompt"), table(columns, prompt.pairs, { label: "Pairs of this prompt" })];
}

function pairView(pair, tools) {
  const prompt = pair.prompt, a = prompt.edits[pair.a], b = prompt.edits[pair.b];
  const two = a === b ? [[a, "A"]] : [[a, "A"], [b, "B"]];
  const codes = new Map(two), all = prompt.edits.map((edit) => [edit, codes.get(edit) || ""]);
  const pictures = make("div"), figures = make("div");
  const redraw = () => {
    const shown = every ? all : two;
    const called = every ? all.map(([edit]) => [edit, edit.model]) : two;
    pictures.replaceChildren(views(pair, shown));
    figures.replaceChildren(...[measuresTable(prompt, called, every || two.length < 2), every && pair.why ? pairsOf(prompt) : null].flat().filter(Boolean));
    ramp.hidden = mode !== "difference";
  };
  const modes = [["side", "Side by side"], ["swipe", "Swipe"], ["difference", "Difference"]].map(([value, text]) => {
    const radio = make("input", { type: "radio", name: "mode", value, onchange: () => { mode = value; redraw(); } });
    radio.checked = mode === value;
    return make("label", {}, radio, ` ${text}`);
  });
  const tick = (text, name, checked, change) => {
    const box = make("input", { type: "checkbox", onchange: () => { change(box.checked); redraw(); } });
    box.checked = checked;
    return make("label", {}, box, name ? make("span", { class: `key ${name}`, "aria-hidden": "true" }) : null, ` ${text}`);
  };
  const drawn = Object.keys(LAYERS).filter((name) => [prompt, ...prompt.edits].some((each) => each.layers?.[name]?.length));
  const layers = drawn.map((name) => tick(LAYERS[name], name, !hidden.has(name), (shown) => (shown ? hidden.delete(name) : hidden.add(name))));
  const measured = prompt.edits.some((edit) => dash(edit.difference) !== null);
  const ramp = make("p", { class: "note" }, "No difference ", make("span", { class: "ramp", "aria-hidden": "true" }),
    measured ? " 20 ΔE or more" : " a quarter of the range or more (red, green and blue together)");
  redraw();
  const where = make("p", { class: "soft who" }, prompt.task ? `${words(prompt.task)} · ` : "", prompt.kind ? `${words(prompt.kind)} · ` : "", own(pair.key));
  return [tools, where, make("p", { class: "instruction", dir: "auto" }, prompt.instruction || "The instruction is not here."),
    make("fieldset", {}, make("legend", {}, "View"), modes, all.length > 2 ? tick(`All ${all.length} edits`, null, every, (shown) => { every = shown; }) : null),
    layers.length ? make("fieldset", {}, make("legend", {}, "Layers"), layers) : null,
    ramp, pictures, verdictTable(pair), ruleOf(pair, prompt, a, b), figures].flat().filter(Boolean);
}

// --- the gallery

function gallery(pairs, notes) {
  if (!pairs.length) return [nothing("There are no pairs here: dvc repro annotate train_pairs compare_models makes them."), ...notes];
  const PAGE = 24;
  let shown = pairs, drawn = 0;
  const listed = make("ul", { class: "cards" }), count = make("p", { class: "note", role: "status" });
  const more = make("button", { type: "button", onclick: () => { const next = drawn; draw(); listed.children[next]?.querySelector("a").focus(); } }, "Show more");
  const card = (pair) => {
    const prompt = pair.prompt, a = prompt.edits[pair.a], b = prompt.edits[pair.b], best = pair.why ? pair.winner : pair.truth;
    const half = (edit, code) => make("span", { class: best === code ? "win" : null }, picture(image(edit.image), "", true), `${code} `, own(edit.model));
    const tags = [[words(prompt.task)], [prompt.kind === "training" ? (pair.made ? words(pair.tiers || "training pair") : `dropped: ${words(pair.why)}`) : words(prompt.kind)]];
    if (pair.state.wrong) tags.push([pair.judged.length ? "judge wrong" : "label wrong", "bad"]);
    if (pair.state.disagree) tags.push(["judges disagree"]);
    if (pair.state.order) tags.push(["order changed it"]);
    if (pair.state.failed) tags.push(["failed", "bad"]);
    return make("li", {}, make("a", { class: "card", href: `#pair=${encodeURIComponent(pair.key)}` },
      make("span", { class: "thumbs" }, make("span", {}, picture(image(prompt.source), "", true), "Source"), half(a, "A"), half(b, "B")),
      make("span", { class: "say", dir: "auto" }, prompt.instruction || pair.key), make("span", { class: "tags" }, tags.map(([text, kind]) => make("span", { class: `tag ${kind || ""}` }, text)))));
  };
  function draw() {
    listed.append(...shown.slice(drawn, drawn + PAGE).map(card));
    drawn = Math.min(drawn + PAGE, shown.length);
    more.hidden = drawn >= shown.length;
  }
  const wanted = { kind: "", task: "", tiers: "", first: "", second: "", verdict: "", text: "" };
  function fill() {
    const text = wanted.text.toLowerCase();
    shown = pairs.filter((pair) => {
      const prompt = pair.prompt, models = [prompt.edits[pair.a].model, prompt.edits[pair.b].model];
      return (!wanted.kind || prompt.kind === wanted.kind) && (!wanted.task || prompt.task === wanted.task) &&
        (!wanted.tiers || pair.outcome === wanted.tiers) && (!wanted.first || models.includes(wanted.first)) && (!wanted.second || models.includes(wanted.second)) &&
        (!wanted.verdict || pair.state[wanted.verdict]) && (!text || prompt.instruction.toLowerCase().includes(text) || pair.key.toLowerCase().includes(text));
    });
    listed.replaceChildren();
    drawn = 0;
    draw();
    count.textContent = shown.length ? `${shown.length} of ${pairs.length} pairs` : "No pair fits these filters.";
  }
  const several = (values) => [...new Set(values)].sort().map((value) => [value, words(value)]);
  const filter = (name, title, options, all = "all") => choice(title, [["", all], ...options], (value) => { wanted[name] = value; fill(); });
  const models = [...new Set(pairs.flatMap((pair) => [pair.prompt.edits[pair.a].model, pair.prompt.edits[pair.b].model]))].sort().map((name) => [name, name]);
  const fields = [
    filter("kind", "Pairs of", several(pairs.map((pair) => pair.prompt.kind))),
    filter("task", "Task", several(pairs.map((pair) => pair.prompt.task))),
    filter("tiers", "Tier, or why dropped", several(pairs.map((pair) => pair.outcome).filter(Boolean))),
    filter("first", "Model", models, "any"),
    filter("second", "against", models, "any"),
    filter("verdict", "Verdict", [["wrong", "judge wrong"], ["disagree", "judges disagree"], ["order", "order changed it"], ["failed", "failed"]]),
  ];
  fields.forEach((field, n) => { field.select.id = `filter-${["kind", "task", "tiers", "first", "second", "verdict"][n]}`; });
  const search = make("input", { type: "search", id: "filter-text", oninput: () => { wanted.text = search.value; fill(); } });
  fill();
  new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && !more.hidden && draw(), { rootMargin: "600px" }).observe(more);
  openByLink(pairs, () => shown);
  return [...notes, make("div", { class: "fields" }, fields.map((field) => field.label), make("label", {}, "Instruction or key", search)), count, listed, more];
}

function openByLink(pairs, listed) {
  const dialog = $("dialog"), byKey = new Map(pairs.map((pair) => [pair.key, pair]));
  let before = null, current = null;
  const link = (pair) => `#pair=${encodeURIComponent(pair.key)}`;
  const go = (step) => {
    const list = listed().includes(current) ? listed() : pairs;
    const next = list[list.indexOf(current) + step];
    if (next) location.replace(link(next));
  };
  const close = () => dialog.close();
  dialog.addEventListener("close", () => {
    current = null;
    history.replaceState(null, "", "#gallery");
    if (before && before.isConnected) before.focus({ preventScroll: true });
  });
  dialog.addEventListener("click", (event) => event.target === dialog && close());
  dialog.addEventListener("keydown", (event) => {
    if (event.target.matches("input, select")) return;
    if (event.key === "ArrowLeft") go(-1);
    if (event.key === "ArrowRight") go(1);
  });
  function open() {
    if (!location.hash.startsWith("#pair=")) { if (dialog.open) close(); return; }
    let key = "";
    try { key = decodeURIComponent(location.hash.slice(6)); } catch { key = location.hash.slice(6); }
    const pair = byKey.get(key);
    const button = (text, label, onclick) => make("button", { type: "button", "aria-label": label, onclick }, text);
    current = pair || null;
    const tools = make("div", { class: "tools" }, button("← Previous", "Previous pair", () => go(-1)), button("Next →", "Next pair", () => go(1)),
      make("span", { class: "gap" }), button("Close", "Close", close));
    $("pair").replaceChildren(...(pair ? pairView(pair, tools) : [tools, make("p", {}, "This page has no pair ", own(key), ".")]));
    if (!dialog.open) { before = document.activeElement; dialog.showModal(); }
    dialog.scrollTop = 0;
  }
  addEventListener("hashchange", open);
  queueMicrotask(open);
}

// --- the page

const pairs = data.prompts.flatMap((prompt) => prompt.pairs.map((pair) => Object.assign(pair, {
  prompt, outcome: pair.why ? (pair.made ? pair.tiers || "made" : `dropped: ${pair.why}`) : "" })));
pairs.forEach((pair) => { pair.state = verdictState(pair); });

function start() {
  startTheme();
  const put = (id, nodes) => body(id).replaceChildren(...nodes);
  if (!$("gallery")) { $("pair").replaceChildren(...pairView(pairs[0], null)); return; }
  const notes = data.shown < data.pairs ? [nothing(`${data.shown} of ${data.pairs} pairs are on this page, the same number of each kind and task as far as they go (report.pairs of params.yaml).`)] : [];
  put("gallery", gallery(pairs, notes));
  if (data.results) results(data.results, put);
  if (data.missing?.length) $("missing").append(make("details", {}, make("summary", {}, `${data.missing.length} files are not here: what they hold is left out`),
    make("ul", {}, data.missing.map((line) => make("li", {}, line)))));
  document.querySelectorAll("main > section > h2").forEach((head) => $("nav").append(make("li", {}, make("a", { href: `#${head.parentNode.id}` }, head.textContent))));
}
function results(results, put) {
  $("about").textContent = results.about.join(" ");
  put("leaderboard", leaderboard(results.boards));
  put("win-rates", winRates(results.boards));
  put("judges", judgeTables(results.judges, results.judge_charts));
  put("training", training(results.training));
  put("measures", results.response.length ? smallCharts(results.response) : [nothing("plots/measure_response.csv is not here: dvc repro measure_response makes it.")]);
  put("coverage", results.coverage.length ? smallCharts(results.coverage) : [nothing("plots/coverage.csv is not here: dvc repro filter makes it.")]);
  put("failed", results.failures.length ? [table([named("stage", "Stage"), named("what", "What"), named("reason", "Reason", { long: true }), column("records", "Records", 0)], results.failures, { sortable: true, label: "What failed" })]
    : [make("p", {}, "Nothing failed, and nothing is without a verdict.")]);
  put("graph", graph(results.graph));
}
start();
addEventListener("load", () => charts.forEach((chart) => chart.draw()));
