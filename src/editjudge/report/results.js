
// --- how good the judges are, and what the training did

function judgeTables(benchmarks, figures) {
  if (!benchmarks.length) return [nothing("No judge was measured: dvc repro judge_benchmark does it.")];
  return [...benchmarks.flatMap(benchmarkTables), make("div", { class: "figures" }, figures.map(chart))];
}

function benchmarkTables(bench) {
  // Columns that say nothing here are left out: a mean over tasks that is the accuracy, counts that are all the same.
  const some = (holds) => bench.rows.some(holds);
  const columns = [
    named("judge", "Judge"),
    { title: "", kind: "graphic", cell: (row) => rangeBar(row.accuracy, [0, 1], bench.chance) },
    { title: "Accuracy", cell: (row) => interval(row.accuracy), sort: (row) => row.accuracy.value },
    some((row) => show(row.mean_over_tasks.value) !== show(row.accuracy.value)) ?
      { title: "Mean over tasks", cell: (row) => interval(row.mean_over_tasks), sort: (row) => row.mean_over_tasks.value } : null,
    { title: "Same in both orders", cell: (row) => show(row.consistency), sort: (row) => row.consistency },
    { title: "First preferred", cell: (row) => interval(row.position), sort: (row) => row.position.value },
    some((row) => known(row.threshold?.threshold)) ?
      { title: "Threshold (ΔE)", cell: (row) => (known(row.threshold?.threshold) ? show(row.threshold.threshold, 2) : "none"), sort: (row) => row.threshold?.threshold } : null,
    some((row) => row.scored !== row.n) ? { title: "Scored", cell: (row) => `${row.scored} of ${row.n}`, sort: (row) => row.scored } : null,
  ].filter(Boolean);
  const chance = known(bench.chance) ? ` Dashed: guessing, ${show(bench.chance, 2)}.` : "";
  const caption = `${counted(bench.items, "pair")}, each asked in both orders; 95 % intervals over photos.${chance} First preferred: the image shown first; one half is no bias.` +
    " Threshold: the gap of damage at which a judge is halfway from guessing to its best; none where its curve shows no such gap.";
  return [make("h3", {}, own(bench.benchmark)), table(columns, bench.rows, { sortable: true, label: `Judges on ${bench.benchmark}`, caption }),
    ...publishedTable(bench), ...differencesTable(bench)];
}

function publishedTable(bench) {
  if (!bench.published) return [];
  const rows = Object.entries(bench.published.judges).map(([judge, value]) => ({ judge, value }));
  return [make("details", {}, make("summary", {}, `What papers print for ${bench.published.name}`),
    table([named("judge", "Judge"), column("value", bench.published.figure, 3)], rows, { sortable: true, label: `Published for ${bench.published.name}, beside ${words(bench.benchmark)}`,
      caption: `These are of other pairs than the rows above, unless this is that benchmark. From ${bench.published.source}: ${bench.published.protocol}.` }))];
}

function differencesTable(bench) {
  if (!bench.differences.length) return [];
  // The test flips the sign of whole photos: with n of them no p is below 2 / 2 ** n, times the number of comparisons.
  const photos = bench.rows.map((row) => row.photos).filter(known);
  const least = photos.length ? Math.min(1, bench.differences.length * 2 ** (1 - Math.max(...photos))) : 0;
  const blind = least > 0.05;
  const ends = bench.differences.flatMap((row) => [row.difference, row.low, row.high]).filter(known).map(Math.abs);
  const scale = [-Math.max(...ends, 0.01), Math.max(...ends, 0.01)];
  const columns = [
    { title: "Judges", text: true, cell: (row) => [own(row.first), " less ", own(row.second)] },
    { title: "", kind: "graphic", cell: (row) => rangeBar({ value: row.difference, low: row.low, high: row.high }, scale, 0) },
    { title: "Difference of accuracy", cell: (row) => interval({ value: row.difference, low: row.low, high: row.high }) },
    blind ? null : { title: "p (Holm)", cell: (row) => show(row.p) },
  ].filter(Boolean);
  const why = blind ? `p is not shown. Its test flips the signs of whole photos, and with ${counted(Math.max(...photos), "photo")} and ${counted(bench.differences.length, "comparison")} ` +
    `it can never fall below ${show(least)}, whatever the judges do. So an interval without 0 is a hint here and no proof.` : "p: of a test that flips the signs of whole photos, corrected for the number of comparisons.";
  return [table(columns, bench.differences, { caption: `The same pairs, two judges. ${why}`, label: `Differences on ${bench.benchmark}` })];
}

function training(results, benchmarks) {
  const { base, scorers, raters, pairs, figures } = results;
  const parts = base.length ? base.map((row) => gainOf(row, benchmarks)) : [nothing("No judge was trained, or its base was not measured beside it.")];
  if (scorers.length) parts.push(make("h3", {}, "Scorers"), scorersTable(scorers));
  if (raters.length) parts.push(make("h3", {}, "Raters"), ratersTable(raters));
  parts.push(make("div", { class: "figures" }, figures.map(chart)));
  if (pairs.length) parts.push(make("h3", {}, "Training pairs"), trainingPairs(pairs));
  return parts;
}

function gainOf(row, benchmarks) {
  const photos = benchmarks.find((bench) => bench.benchmark === row.benchmark)?.rows.find((each) => each.judge === row.judge)?.photos;
  const said = row.low > 0 ? "The trained judge is right more often than its base, and the interval leaves 0 out." :
    row.high < 0 ? "The trained judge is right less often than its base, and the interval leaves 0 out." : "The interval holds 0: no gain is shown.";
  return make("p", {}, own(row.judge), " less its untrained base on ", own(row.benchmark), `: accuracy ${interval({ value: row.difference, low: row.low, high: row.high })}. ${said}`,
    known(photos) ? ` All of it is measured on ${counted(photos, "photo")}.` : "");
}

function scorersTable(rows) {
  const share = (of) => interval({ value: of.accuracy, low: of.low, high: of.high });
  const below = (row) => row.baselines.filter((each) => !(each.lead.low > 0)).length;
  const columns = [named("scorer", "Scorer"), named("dimension", "Dimension", { cell: (row) => words(row.dimension) }),
    { title: "Accuracy", cell: (row) => share(row.test), sort: (row) => row.test.accuracy },
    { title: "Above all", text: true, cell: (row) => (below(row) ? `not of ${below(row)}` : "yes"), sort: below },
    ...rows[0].baselines.map((each, n) => ({ title: words(each.baseline), cell: (row) => share(row.baselines[n]), sort: (row) => row.baselines[n].accuracy }))];
  return table(columns, rows, { sortable: true, label: "Scorers beside what reads no words", caption: "How often the better edit of held-out photos is named; 95 % intervals over photos. " +
    "Beside it: how much the pixels differ from the source's, how many are the same, and the scorer itself, asked with another instruction. Above all: the lower end of the difference on the same pairs is above 0 for each of the three." });
}

function ratersTable(rows) {
  const share = (of) => interval({ value: of.accuracy, low: of.low, high: of.high }), below = (row) => row.test.accuracy < row.constant.accuracy;
  const columns = [named("scorer", "Rater"), named("dimension", "Dimension", { cell: (row) => words(row.dimension) }), named("truth", "Truth"),
    { title: "Within a point", cell: (row) => share(row.test), sort: (row) => row.test.accuracy },
    { title: "A constant", cell: (row) => `${share(row.constant)}, always ${row.constant.score.toFixed(1)}`, sort: (row) => row.constant.accuracy },
    { title: "Against it", text: true, cell: (row) => (below(row) ? "below: it knows less than who says the same of every edit" : "not below"), sort: below }];
  return table(columns, rows, { sortable: true, label: "Raters beside a constant", caption: "How often a rating of a held-out edit lies within a point of the known score; 95 % intervals over photos." });
}

const COLUMNS = { task: "Task", prompts: "Prompts", prompts_with_pair: "With a pair", pairs: "Pairs", share_right: "Share right" };
function trainingPairs(pairs) {
  // A column of zeros alone says nothing.
  const names = Object.keys(pairs[0]).filter((name) => name in COLUMNS || pairs.some((row) => row[name]));
  const columns = names.map((name) => name === "task" ? named(name, COLUMNS[name], { cell: (row) => words(row.task) }) :
    column(name, COLUMNS[name] || `dropped: ${words(name)}`, name === "share_right" ? 3 : 0));
  return table(columns, pairs, { sortable: true, label: "Training pairs",
    caption: "Pairs by task, the share that names the truly less damaged edit, and why other pairs were dropped." });
}

function failedTable(failures) {
  if (!failures.length) return [make("p", {}, "Nothing failed, and nothing is without a verdict.")];
  const columns = [named("stage", "Stage"), named("what", "What"), named("reason", "Reason", { long: true }), column("records", "Records", 0)];
  return [table(columns, failures, { sortable: true, label: "Failures" })];
}
