
// --- images

const image = (number) => (known(number) ? data.images[number] : null);
const noPicture = (text = "no image here") => make("span", { class: "none" }, text);
function picture(row, alt, lazy) {
  if (!row) return noPicture();
  const node = make("img", { alt, loading: lazy ? "lazy" : null, decoding: "async", width: row.width, height: row.height });
  node.addEventListener("error", () => node.replaceWith(noPicture()), { once: true });
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

// What is known to be better is what damaged less: it is the truth of a judge that was asked what was kept, not of one
// that was asked whether the instruction was followed or how good the image looks.
const ABOUT_DAMAGE = [null, undefined, "visual_consistency"];
const LABEL = "the training label";

function answersOf(pair) {
  // What each judge said, and what the label of a training pair says; state: right, wrong, undecided, failed, or none
  // where it is not known which edit is better.
  const given = pair.judged.map(([judge, dimension, forward, backward, winner, p]) =>
    ({ judge: data.judges[judge], dimension, winner, p, turned: Boolean(forward && backward && forward !== backward), about: ABOUT_DAMAGE.includes(dimension) }));
  if (pair.made && pair.winner && !given.length) given.push({ judge: LABEL, winner: pair.winner, p: null, turned: false, about: true });
  return given.map((answer) => ({ ...answer, state: stateOf(answer, pair) }));
}
function stateOf({ winner, about }, { truth }) {
  if (!winner) return "failed";
  if (winner === "T") return "undecided";
  return !truth || !about ? "none" : winner === truth ? "right" : "wrong";
}
function disagree(pair) {
  // Judges that were asked the same give different answers.
  const said = new Map();
  return pair.answers.filter((each) => each.winner).some(({ dimension, winner }) => {
    const before = said.get(dimension);
    said.set(dimension, winner);
    return before !== undefined && before !== winner;
  });
}
function gapOf(pair) {
  const [a, b] = [pair.prompt.edits[pair.a].damage, pair.prompt.edits[pair.b].damage];
  return known(a) && known(b) ? Math.abs(a - b) : null;
}

const dash = (value) => (known(value) ? value : null);
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
  const right = { right: "yes", wrong: "no", undecided: "undecided" };
  const state = (row) => stateOf({ winner: row[4], about: ABOUT_DAMAGE.includes(row[1]) }, pair);
  if (pair.truth) columns.push({ title: "Right", text: true, cell: (row) => make("span", { class: { right: "good", wrong: "bad" }[state(row)] }, right[state(row)] || "–") });
  if (pair.judged.some((row) => row[1])) columns.splice(1, 0, { title: "Asked about", text: true, cell: (row) => words(row[1] || "–") });
  if (pair.judged.some((row) => row[6])) columns.push({ title: "Reason", text: true, long: true, cell: (row) => own(row[6] || "–") });
  if (pair.judged.some((row) => row[9])) columns.push({ title: "Why", text: true, long: true, cell: (row) => (row[9] ? make("details", {}, make("summary", {}, "What it wrote"), make("p", { class: "said" }, own(row[9]))) : "–") });
  return [make("h3", {}, "Judges"), table(columns, pair.judged, { label: "Judges" })];
}

let mode = "side", every = false, playing = !matchMedia("(prefers-reduced-motion: reduce)").matches;
const BLINK = 700; // ms that one image stands
let blinking = null;
function blink(stacks) {
  // In each stack the upper image comes and goes. stacks: [upper, the words that say which image is seen, their texts].
  clearInterval(blinking);
  blinking = null;
  let upper = true;
  const turn = () => {
    upper = !upper;
    stacks.forEach(([node, said, texts]) => { node.style.visibility = upper ? "visible" : "hidden"; said.textContent = texts[upper ? 1 : 0]; });
  };
  turn();
  if (playing && stacks.length) blinking = setInterval(() => (stacks[0][0].isConnected ? turn() : clearInterval(blinking)), BLINK);
  return turn;
}

function aspect(source, shown) {
  // By what factor the edit is wider for its height than the source; whole pixels move it a little.
  const factor = source && shown ? (shown.width * source.height) / (shown.height * source.width) : 1;
  return Math.abs(Math.log(factor)) > Math.log(1.02) ? `aspect ratio × ${show(factor, 2)}` : null;
}
const figureOf = (head, content) => make("figure", {}, make("figcaption", {}, head), content);
function stackOf(source, children) {
  return make("div", { class: "stack", style: source ? { "aspect-ratio": `${source.width} / ${source.height}` } : {} }, children);
}
function swipeOf(below, above, names, marked) {
  const top = make("div", { class: "over" }, picture(above, names[1])), cut = make("span", { class: "cut" });
  const slide = make("input", { type: "range", min: 0, max: 100, value: 50, "aria-label": `${names[1]} up to here, ${names[0]} beyond`, oninput: () => place() });
  const place = () => { top.style.clipPath = `inset(0 ${100 - slide.value}% 0 0)`; cut.style.left = `${slide.value}%`; };
  place();
  return [picture(below, names[0]), top, marked, cut, slide];
}
function heatOf(source, edit, name) {
  const map = image(edit.difference);
  const heat = map ? make("div", {}, picture(map, "")) : make("div", { class: "heatmap" }, picture(source, ""), make("div", { class: "over" }, picture(image(edit.image), "")));
  heat.setAttribute("role", "img");
  heat.setAttribute("aria-label", `Where ${name} differs from the source`);
  return heat;
}
function headOf(edit, code, pair, source) {
  const value = (name, given, unit = "") => (known(given) ? `${name} ${short(given)}${unit}` : null);
  const said = [edit.tier ? words(edit.tier) : null, known(edit.total) ? `z ${show(edit.total, 2)}` : null, value("change", edit.change), value("known damage", edit.damage, " ΔE"),
    aspect(source, image(edit.image)), code && pair.truth === code ? (pair.why ? "truly better" : "the better one") : null];
  return [make("strong", {}, code ? `${code} ` : ""), own(edit.model),
    make("span", { class: "soft" }, said.filter(Boolean).join(" · "), image(edit.image) && edit.reason ? [" · ", own(edit.reason)] : null)];
}
function views(pair, shown, controls) {
  // shown: [edit, "A" or "B" or ""]. Of two edits, swipe and blink also show A and B on one another.
  const prompt = pair.prompt, source = image(prompt.source), stacks = [];
  const over = (edit) => (source ? marks(edit?.layers || prompt.layers || {}, source) : null);
  const pile = (below, above, names, edit) => {
    if (mode === "swipe") return stackOf(source, swipeOf(below, above, names, over(edit)).filter(Boolean));
    const top = make("div", { class: "over" }, picture(above, names[1])), said = make("span", { class: "now", "aria-hidden": "true" });
    stacks.push([top, said, names]);
    return stackOf(source, [picture(below, names[0]), top, over(edit), said].filter(Boolean));
  };
  const view = ([edit, code]) => {
    const row = image(edit.image), name = code ? `Edit ${code}` : `Edit of ${edit.model}`, head = headOf(edit, code, pair, source);
    if (!row) return figureOf(head, noPicture(edit.reason ? own(edit.reason) : undefined));
    if (!source || mode === "side") return figureOf(head, stackOf(source, [picture(row, name), over(edit)].filter(Boolean)));
    if (mode === "difference") return figureOf(head, stackOf(source, [heatOf(source, edit, name), over(edit)].filter(Boolean)));
    return figureOf(head, pile(source, row, ["Source", name], edit));
  };
  const [a, b] = shown.map(([edit]) => image(edit.image));
  const both = shown.length === 2 && source && a && b && ["swipe", "blink"].includes(mode);
  const first = both ? figureOf([make("strong", {}, "A and B"), make("span", { class: "soft" }, "on one another")], pile(b, a, ["Edit B", "Edit A"])) :
    figureOf([make("strong", {}, "Source"), make("span", { class: "soft" }, source ? `${source.width} × ${source.height}` : "")],
      source ? stackOf(source, [picture(source, "Source"), over()].filter(Boolean)) : noPicture());
  const more = (prompt.more || []).map((n, at) => figureOf([make("strong", {}, `Source ${at + 2}`)],
    image(n) ? stackOf(image(n), [picture(image(n), `Source ${at + 2}`)]) : noPicture()));
  const figures = make("div", { class: "views" }, first, more, shown.map(view));
  controls.replaceChildren(...blinkControls(stacks));
  return figures;
}
function blinkControls(stacks) {
  let turn = blink(stacks);
  if (!stacks.length) return [];
  const pause = make("button", { type: "button", "aria-pressed": String(!playing), onclick: () => {
    playing = !playing;
    pause.setAttribute("aria-pressed", String(!playing));
    turn = blink(stacks);
  } }, "Pause");
  return [pause, make("button", { type: "button", onclick: () => turn() }, "The other image")];
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

async function withDetails(pair) {
  // Measures, layers and the like of a prompt lie in a file of data/ with those of its neighbours.
  const prompt = pair.prompt;
  if (!data.shard || prompt.detailed) return;
  const own = (await load(`details-${Math.floor(prompt.number / data.shard)}`))[prompt.number % data.shard];
  prompt.layers = own.layers;
  own.edits.forEach((edit, n) => Object.assign(prompt.edits[n], edit));
  own.said?.forEach((each, n) => each.forEach((text, row) => { prompt.pairs[n].judged[row][9] = text; }));
  prompt.detailed = true;
}

function pairView(pair, tools) {
  const prompt = pair.prompt, a = prompt.edits[pair.a], b = prompt.edits[pair.b];
  const two = a === b ? [[a, "A"]] : [[a, "A"], [b, "B"]];
  const codes = new Map(two), all = prompt.edits.map((edit) => [edit, codes.get(edit) || ""]);
  const pictures = make("div"), figures = make("div"), controls = make("div", { class: "blink" });
  const redraw = () => {
    const shown = every ? all : two;
    const called = every ? all.map(([edit]) => [edit, edit.model]) : two;
    pictures.replaceChildren(views(pair, shown, controls));
    figures.replaceChildren(...[measuresTable(prompt, called, every || two.length < 2), every && pair.why ? pairsOf(prompt) : null].flat().filter(Boolean));
    ramp.hidden = mode !== "difference";
  };
  const modes = [["side", "Side by side"], ["swipe", "Swipe"], ["blink", "Blink"], ["difference", "Difference"]].map(([value, text]) => {
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
    ramp, controls, pictures, verdictTable(pair), ruleOf(pair, prompt, a, b), figures].flat().filter(Boolean);
}

