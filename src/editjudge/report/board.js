
// --- the leaderboard, and who beats whom

// What the built-in editors do, by their kind. They are programs: they carry the edit out exactly, and then damage the
// rest of the photo by an amount that is known, so that it is known which of two edits is better.
const PROCEDURAL = {
  unedited: "gives the photo back as it is",
  precise: "carries the edit out and leaves all else as it is",
  leaky: "lets the colour of the edit spill over its border",
  box: "changes the box around the object, not the object alone",
  regenerated: "makes the whole photo anew, softer and with other colours",
  shifted: "moves the whole photo a little",
  style_transfer: "has a neural network paint over the photo in another style",
};

function leaderboard(boards, editors) {
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
    place.replaceChildren(
      board.models.length ? boardTable(board) : nothing(board.reason || "No model is rated."),
      make("p", { class: "note" }, part ? `${words(board.name)}, by ${boards[judge].judge}` : matchesOf(boards[judge].counts)),
      ...board.warnings.map((text) => make("p", { class: "note" }, text)));
  }
  fillParts();
  fill();
  return [make("div", { class: "fields" }, judges.label, parts.label), place,
    make("p", { class: "note" }, "Bar: the 95 % interval over photos. Rank: the places that a model may hold, for all at once. Damage: mean ΔE outside the edit."),
    ...whatTheyAre(boards, editors)];
}

function matchesOf(counts) {
  return [counted(counts.matches, "match").replace(/hs$/, "hes"), counted(counts.ties, "tie"), counts.unscored ? `${counts.unscored} without a verdict` : null, counted(counts.clusters, "photo"),
    counts.gated ? `${counted(counts.gated, "win")} where the edit followed the instruction less, counted as ${counts.gated === 1 ? "a tie" : "ties"}` : null,
    known(counts.kendall_tau) ? `Kendall's tau with the known order ${show(counts.kendall_tau, 2)}` : null].filter(Boolean).join(" · ");
}

function boardTable(board) {
  const ends = board.models.flatMap((row) => [row.rating, row.low, row.high]).filter(known);
  const scale = [Math.min(...ends), Math.max(...ends)];
  const ranks = (row) => (!known(row.rank_low) ? show(row.rank, 0) : row.rank_low === row.rank_high ? `${row.rank_low}` : `${row.rank_low}–${row.rank_high}`);
  const columns = [
    { title: "Rank", text: true, kind: "ranks", cell: ranks, sort: (row) => -row.rank },
    named("model", "Model", { header: true, kind: "model" }),
    { title: "", kind: "span", cell: (row) => rangeBar({ value: row.rating, low: row.low, high: row.high }, scale) },
    { title: "Rating", kind: "rating", sort: (row) => row.rating, cell: (row) => [make("strong", {}, show(row.rating, 0)),
      known(row.low) ? make("span", { class: "soft" }, `${show(row.low, 0)} to ${show(row.high, 0)}`) : null] },
  ];
  if (board.models.some((row) => known(row.known_damage))) columns.push(column("known_damage", "Damage", 1, { kind: "extra" }));
  else if (new Set(board.models.map((row) => row.matches)).size > 1) columns.push(column("matches", "Matches", 0, { kind: "extra" }));
  return table(columns, board.models, { sortable: true, label: "Ratings of the models", kind: "board" });
}

function whatTheyAre(boards, editors = {}) {
  // Says which models are programs of ours, and why the one that does nothing can win.
  const kinds = Object.entries(editors).filter(([, kind]) => kind in PROCEDURAL);
  if (!kinds.length) return [];
  const all = kinds.length === Object.keys(editors).length;
  const list = make("ul", {}, kinds.map(([name, kind]) => make("li", {}, make("strong", {}, own(name)), ` ${PROCEDURAL[kind]}.`)));
  const idle = kinds.find(([, kind]) => kind === "unedited")?.[0];
  const leads = boards.filter((board) => board.parts[0].models[0]?.model === idle).map((board) => board.judge);
  const place = boards[0].parts[0].models.find((row) => row.model === idle)?.rank;
  const why = !idle ? null : make("p", {}, own(idle), " damages nothing, because it does nothing. ",
    leads.length ? `A judge that is asked only what was kept prefers that: it leads the boards of ${leads.join("; ")}. ` : "",
    place ? `On the board of ${boards[0].judge} it has place ${place}: there it also counts whether the instruction was followed.` : "");
  const painted = kinds.filter(([, kind]) => kind === "style_transfer").map(([name]) => name);
  const what = `${all ? "All" : `${kinds.length} of the`} models here are ${all ? "" : "our "}programs, ` +
    `${painted.length ? "none an AI model that edits" : "no AI models"}: each carries the edit out and damages the rest by a known amount` +
    `${painted.length ? `, ${painted.join(" and ")} with a neural network` : ""}.`;
  return [make("p", { class: "note" }, what), make("details", {}, make("summary", {}, "What each does, and why doing nothing can win"), list, why)];
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
    place.replaceChildren(scroll("Win rates of the models", make("table", { class: "heat" }, make("thead", {}, head), make("tbody", {}, rows))));
  }
  const judges = choice("Judge", found.map((board, n) => [n, board.judge]), (value) => fill(+value));
  fill(0);
  return [make("p", { class: "note" }, "How often the model of the row wins against that of the column, ties as halves. Blue: more than one half."),
    make("div", { class: "fields" }, judges.label), place];
}
