
// --- charts: Vega-Lite specifications, drawn when they come near. The library that draws them is loaded for the first.

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
    if (!state.near) return;
    try { await load("charts"); } catch { node.textContent = "The library of the charts, data/charts.js, is not beside this page."; return; }
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
  const details = make("details", { ontoggle: () => details.childElementCount > 1 || details.append(table(columns, rows, { label: given.title, kind: "numbers" })) }, make("summary", {}, "As a table"));
  seen.observe(node);
  return make("figure", {}, make("h3", {}, own(given.title)), make("p", { class: "note" }, given.note), node, details);
}
function smallCharts(given) {
  const figures = given.map(chart);
  figures.forEach((figure) => figure.querySelector("p").remove());
  return [make("p", { class: "note" }, given[0].note), make("div", { class: "figures small" }, figures)];
}

