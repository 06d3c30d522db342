
// --- another revision: the figures of this page beside those of another report's index.html

function revision() {
  const place = make("div", { role: "status" });
  const file = make("input", { type: "file", accept: ".html", onchange: async () => {
    const other = await resultsIn(file.files[0]);
    place.replaceChildren(...(other ? beside(data.results, other) : [nothing("This file is no index.html of a report that can be compared.")]));
  } });
  return [make("p", { class: "note" }, "Choose the report/index.html of another commit. It is read here alone, and nothing in it runs."),
    make("div", { class: "fields" }, make("label", {}, "Another index.html", file)), place];
}

async function resultsIn(file) {
  // A parsed document runs no scripts and loads no images.
  try {
    const page = new DOMParser().parseFromString(await file.text(), "text/html");
    const { results } = JSON.parse(page.getElementById("data").textContent);
    return figuresOf(results).length ? results : null;
  } catch { return null; }
}

function figuresOf(results) {
  // Every figure by what it is, with its interval.
  const rated = results.boards.flatMap((board) => board.parts[0].models.map((row) =>
    ({ of: "Rating", name: `${row.model}, ${board.judge}`, digits: 0, value: row.rating, low: row.low, high: row.high })));
  const accuracies = results.judges.flatMap((bench) => bench.rows.map((row) =>
    ({ of: "Accuracy", name: `${row.judge}, ${bench.benchmark}`, digits: 3, ...row.accuracy })));
  const gains = results.training.base.map((row) => ({ of: "Gain by training", name: `${row.judge}, ${row.benchmark}`, digits: 3, value: row.difference, low: row.low, high: row.high }));
  const pairs = results.training.pairs.map((row) => ({ of: "Training pairs", name: words(row.task), digits: 0, value: row.pairs }));
  return [...accuracies, ...gains, ...rated, ...pairs];
}

function beside(here, there) {
  const key = (row) => `${row.of}: ${row.name}`;
  const others = new Map(figuresOf(there).map((row) => [key(row), row]));
  const ours = figuresOf(here).map((row) => ({ ...row, other: others.get(key(row)) }));
  const names = new Set(ours.map(key));
  const gone = [...others.values()].filter((row) => !names.has(key(row))).map((row) => ({ ...row, value: null, other: row }));
  const change = (row) => (known(row.value) && known(row.other?.value) ? row.value - row.other.value : null);
  const columns = [named("of", "What"), named("name", "Of"),
    { title: "Other page", cell: (row) => (row.other ? interval(row.other, row.digits) : "–") },
    { title: "This page", cell: (row) => interval(row, row.digits) },
    { title: "Change", cell: (row) => (known(change(row)) ? `${change(row) > 0 ? "+" : ""}${show(change(row), row.digits)}` : "–"), sort: (row) => Math.abs(change(row) ?? 0) }];
  return [table(columns, [...ours, ...gone], { sortable: true, label: "This page and another",
    caption: "A change is no proof: the intervals are of each page alone, and both look at the same photos." })];
}
