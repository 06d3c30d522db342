
// --- what is seen first: the verdict in a sentence, and pairs that show what it means

function leadingJudge(results) {
  // The trained judge, on a benchmark that it was measured on; where there is none, the judge that is right most often.
  const gain = results.training.base[0];
  const bench = results.judges.find((each) => each.benchmark === gain?.benchmark) || results.judges[0];
  if (!bench) return null;
  const heard = bench.rows.filter((row) => known(row.accuracy.value));
  const best = [...heard].sort((a, b) => b.accuracy.value - a.accuracy.value)[0];
  const row = heard.find((each) => each.judge === gain?.judge) || best;
  return row ? { bench, row, base: heard.find((each) => each.judge === gain?.base) } : null;
}

function verdict(results) {
  const lead = leadingJudge(results), board = results.boards[0]?.parts[0].models || [];
  const parts = [];
  if (lead) {
    const { value, low, high } = lead.row.accuracy, within = known(low) ? ` (${percent(low)} to ${percent(high)})` : "";
    parts.push(lead.base ? "The trained judge " : "The judge ", own(lead.row.judge), " names the better of two edits in ", make("strong", {}, percent(value)), `${within} of ${counted(lead.bench.items, "pair")}`,
      ...(lead.base ? [", its untrained base in ", make("strong", {}, percent(lead.base.accuracy.value))] : []));
  }
  if (board.length > 1) {
    const first = board.filter((row) => row.rank_low === 1).length;
    parts.push(parts.length ? "; " : "", make("strong", {}, own(board[0].model)), ` leads ${board.length} editing models`,
      first === 1 ? ", and no other may be the best" : first ? `, but any of ${first} may be the best` : "");
  }
  const photos = lead?.row.photos ?? results.boards[0]?.counts.clusters;
  if (parts.length && known(photos)) parts.push(`: it all rests on ${counted(photos, "photo")}`);
  return parts.length ? [...parts, "."] : [];
}

function about(results) {
  const pairs = results.training.pairs, sum = pairs.reduce((all, row) => all + row.pairs, 0);
  const right = pairs.filter((row) => known(row.share_right));
  const share = right.length ? right.reduce((all, row) => all + row.pairs * row.share_right, 0) / Math.max(1, right.reduce((all, row) => all + row.pairs, 0)) : null;
  return [results.judges.length ? results.judges.map((bench) => `${counted(bench.rows.length, "judge")} on the ${counted(bench.items, "pair")} of ${bench.benchmark}`).join(", ") : null,
    sum ? `${counted(sum, "training pair")}${known(share) ? `, of which ${show(100 * share, 1)} % name the better edit` : ""}` : null,
    "brackets are 95 % intervals over photos"].filter(Boolean).map((text) => text[0].toUpperCase() + text.slice(1)).join(". ") + ".";
}

const [WINS, FAILURES] = [4, 2];
function tellingPairs(pairs, judge, editors) {
  // Pairs on which the judge is right, and pairs on which it is wrong, the same in both orders. The gap of damage is wide
  // and the judge is sure: who looks at the pair can tell. An edit that changes nothing is no edit to look at.
  const found = [];
  for (const pair of pairs) {
    const answer = pair.answers.find((each) => each.judge === judge && !each.turned && ["right", "wrong"].includes(each.state));
    const edits = [pair.prompt.edits[pair.a], pair.prompt.edits[pair.b]];
    if (!answer || !image(pair.prompt.source) || !edits.every((edit) => image(edit.image) && editors[edit.model] !== "unedited")) continue;
    found.push({ pair, answer, score: (known(answer.p) ? Math.abs(answer.p - 0.5) : 0.25) * Math.min(gapOf(pair) ?? 1, 12) });
  }
  const times = new Map(), used = (name) => times.get(name) || 0;
  const choose = (state, most) => {
    let left = found.filter(({ answer }) => answer.state === state).sort((a, b) => b.score - a.score || (a.pair.key < b.pair.key ? -1 : 1));
    left = left.slice(0, Math.max(12, Math.ceil(left.length / 3)));
    const chosen = [];
    while (chosen.length < most && left.length) {
      // Another photo comes first, then another kind of damage, another task, and a clearer case.
      const marks = ({ pair }) => [pair.prompt.photo ?? pair.prompt.key, `by ${pair.models[pair.truth === "A" ? 1 : 0]}`, `task ${pair.prompt.task}`];
      const best = left.reduce((one, other) => {
        const differences = marks(other).map((mark, n) => used(mark) - used(marks(one)[n]));
        return (differences.find((each) => each !== 0) ?? 0) < 0 ? other : one;
      });
      marks(best).forEach((mark) => times.set(mark, used(mark) + 1));
      chosen.push(best);
      left = left.filter(({ pair }) => pair.prompt !== best.pair.prompt);
    }
    return chosen;
  };
  return [...choose("right", WINS), ...choose("wrong", FAILURES)];
}

function telling(results, pairs) {
  const lead = leadingJudge(results);
  const chosen = lead ? tellingPairs(pairs, lead.row.judge, results.editors) : [];
  if (!chosen.length) return [nothing("No pair here has a judge's verdict and a known better edit.")];
  const wins = chosen.filter(({ answer }) => answer.state === "right").length;
  const line = ({ pair, answer }) => {
    const right = answer.state === "right", gap = gapOf(pair);
    return make("span", { class: `said ${right ? "good" : "bad"}` }, right ? "✓ Right: " : "✗ Wrong: ", `it prefers ${answer.winner}`,
      known(answer.p) ? `, ${percent(Math.max(answer.p, 1 - answer.p))} sure` : "", known(gap) ? `; gap ${show(gap, 1)}\u00a0ΔE` : "");
  };
  return [make("p", { class: "note" }, own(lead.row.judge), `: ${counted(wins, "pair")} that it gets right, ${chosen.length - wins} that it gets wrong. Green: the edit that truly damaged less.`),
    make("ul", { class: "cards six" }, chosen.map((each) => make("li", {}, cardOf(each.pair, [line(each)]))))];
}
