
// --- the page

function prepare() {
  // The pairs of all prompts, each with what the filters ask about.
  data.prompts.forEach((prompt, n) => { prompt.number = n; });
  return data.prompts.flatMap((prompt) => prompt.pairs.map((pair) => {
    Object.assign(pair, { prompt, outcome: pair.why ? (pair.made ? pair.tiers || "made" : `dropped: ${pair.why}`) : "" });
    pair.models = [prompt.edits[pair.a].model, prompt.edits[pair.b].model];
    pair.answers = answersOf(pair);
    pair.disagree = disagree(pair);
    pair.failed = FAILED.includes(pair.why) || pair.answers.some((each) => each.state === "failed");
    pair.gap = gapOf(pair);
    pair.words = `${prompt.instruction}\n${pair.key}`.toLowerCase();
    return pair;
  }));
}

const put = (id, nodes) => body(id).replaceChildren(...nodes);
async function start() {
  startTheme();
  if (!$("gallery")) { $("pair").replaceChildren(...pairView(prepare()[0], null)); return; }
  document.querySelectorAll("main section > h2").forEach((head) => $("nav").append(make("li", {}, make("a", { href: `#${head.parentNode.id}` }, head.textContent))));
  if (data.results) showResults(data.results);
  if (data.missing?.length) $("missing").append(make("details", {}, make("summary", {}, `${counted(data.missing.length, "file")} not here: what they hold is left out`),
    make("ul", {}, data.missing.map((line) => make("li", {}, line)))));
  let lost = [];
  if (data.shard) {
    put("telling", [make("div", { class: "waits" })]);
    try { Object.assign(data, await load("pairs")); } catch (error) {
      lost = [nothing(`${error.message}: copy the whole folder of the report to see its pairs.`)];
      Object.assign(data, { prompts: [], images: [], judges: [], tasks: {} });
    }
  }
  const pairs = prepare();
  if (data.results) put("telling", lost.length ? lost : telling(data.results, pairs));
  const part = data.shown < data.pairs ? [nothing(`${data.shown} of ${data.pairs} pairs are on this page, the same number of each kind and task as far as they go (report.pairs of params.yaml).`)] : [];
  put("gallery", lost.length ? lost : gallery(pairs, part));
}

function showResults(results) {
  $("verdict").replaceChildren(...verdict(results));
  $("about").textContent = about(results);
  put("leaderboard", leaderboard(results.boards, results.editors));
  put("win-rates", winRates(results.boards));
  put("judges", judgeTables(results.judges, results.judge_charts));
  put("training", training(results.training, results.judges));
  put("coverage", results.coverage.length ? smallCharts(results.coverage) : [nothing("plots/coverage.csv is not here: dvc repro filter makes it.")]);
  put("failed", failedTable(results.failures));
  put("graph", graph(results.graph));
  put("compare", revision());
}
start();
addEventListener("beforeprint", () => charts.forEach((chart) => { chart.near = true; chart.draw(); }));
