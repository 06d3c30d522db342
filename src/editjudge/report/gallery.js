
// --- the gallery, its filters, and the address that holds them

const FIELDS = ["kind", "task", "judge", "answer", "model", "against", "tier", "gap", "sure", "text"];
const ANSWERS = [["right", "right"], ["wrong", "wrong"], ["undecided", "undecided"], ["order", "order changed it"], ["disagree", "judges disagree"], ["failed", "failed, or no verdict"]];
const FAILED = ["failed", "unscored", "unasked"];

function wantedBy(hash) {
  // The filters and the pair that an address names. An address without "=" names a section.
  const given = new URLSearchParams(hash.includes("=") ? hash.slice(1) : "");
  return Object.fromEntries([...FIELDS, "pair"].map((name) => [name, given.get(name) || ""]));
}
function addressOf(wanted, pair) {
  const found = FIELDS.filter((name) => wanted[name]).map((name) => `${name}=${encodeURIComponent(wanted[name])}`);
  if (pair) found.push(`pair=${encodeURIComponent(pair.key)}`);
  return `#${found.join("&") || "gallery"}`;
}

function cardOf(pair, lines, wanted = {}) {
  const prompt = pair.prompt, best = pair.why ? pair.winner : pair.truth;
  const half = (edit, code) => make("span", { class: best === code ? "win" : null }, picture(image(edit.image), "", true), `${code} `, own(edit.model));
  return make("a", { class: "card", href: addressOf(wanted, pair) },
    make("span", { class: "thumbs" }, make("span", {}, picture(image(prompt.source), "", true), "Source"), half(prompt.edits[pair.a], "A"), half(prompt.edits[pair.b], "B")),
    make("span", { class: "say", dir: "auto" }, prompt.instruction || pair.key), lines);
}
function tagsOf(pair) {
  const prompt = pair.prompt, judges = (state) => [...new Set(pair.answers.filter((each) => each.state === state).map((each) => each.judge))].join(", ");
  const tags = [[words(prompt.task)], [prompt.kind === "training" ? (pair.made ? words(pair.tiers || "training pair") : `dropped: ${words(pair.why)}`) : words(prompt.kind)]];
  if (judges("right")) tags.push([`right: ${judges("right")}`, "good"]);
  if (judges("wrong")) tags.push([`wrong: ${judges("wrong")}`, "bad"]);
  if (judges("undecided")) tags.push([`undecided: ${judges("undecided")}`]);
  if (pair.answers.some((each) => each.turned)) tags.push(["order changed it"]);
  if (pair.failed) tags.push(["failed", "bad"]);
  return make("span", { class: "tags" }, tags.map(([text, kind]) => make("span", { class: `tag ${kind || ""}` }, text)));
}

function factsOf(pair) {
  // What the filters ask about, as objects of one form: engines read thousands of these fast.
  const { models, outcome, gap, words, disagree, failed } = pair;
  const answers = pair.answers.map(({ judge, state, turned, p }) => ({ judge, state, turned, sure: known(p) ? Math.max(p, 1 - p) : NaN }));
  return { pair, kind: pair.prompt.kind, task: pair.prompt.task, models, outcome, gap: gap ?? NaN, words, disagree, failed, answers };
}
function fits(pair, wanted) {
  // Whether the filters leave a pair. pair: its facts.
  if (wanted.kind && pair.kind !== wanted.kind) return false;
  if (wanted.task && pair.task !== wanted.task) return false;
  if (wanted.tier && pair.outcome !== wanted.tier) return false;
  if (wanted.model && !pair.models.includes(wanted.model)) return false;
  if (wanted.against && !pair.models.includes(wanted.against)) return false;
  if (wanted.gap && !(pair.gap >= +wanted.gap)) return false;
  if (wanted.text && !pair.words.includes(wanted.text.toLowerCase())) return false;
  if (wanted.answer === "disagree" && !pair.disagree) return false;
  if (wanted.answer === "failed" && !wanted.judge && pair.failed) return true;
  const state = wanted.answer === "disagree" ? "" : wanted.answer;
  if (!wanted.judge && !state && !wanted.sure) return true;
  return pair.answers.some((each) => (!wanted.judge || each.judge === wanted.judge) &&
    (!state || (state === "order" ? each.turned : each.state === state)) &&
    (!wanted.sure || each.sure >= +wanted.sure));
}

function gallery(pairs, notes) {
  if (!pairs.length) return [nothing("There are no pairs here: dvc repro annotate train_pairs compare_models makes them."), ...notes];
  const [FIRST, MORE] = [12, 24];
  const facts = pairs.map(factsOf);
  let shown = pairs, drawn = 0, wanted = wantedBy(location.hash);
  const listed = make("ul", { class: "cards" }), count = make("p", { class: "note", role: "status" });
  const more = make("button", { type: "button", onclick: () => { const next = drawn; draw(MORE); listed.children[next]?.querySelector("a").focus(); } }, "Show more");
  function draw(number) {
    listed.append(...shown.slice(drawn, drawn + number).map((pair) => make("li", {}, cardOf(pair, tagsOf(pair), wanted))));
    drawn = Math.min(drawn + number, shown.length);
    more.hidden = drawn >= shown.length;
  }
  function fill() {
    shown = facts.filter((each) => fits(each, wanted)).map((each) => each.pair);
    listed.replaceChildren();
    drawn = 0;
    draw(FIRST);
    count.textContent = shown.length ? `${shown.length} of ${counted(pairs.length, "pair")}` : "No pair fits these filters.";
  }
  function set(name, value) {
    wanted[name] = value;
    fill();
    history.replaceState(null, "", addressOf(wanted));
  }
  const controls = filterFields(pairs, set);
  const clear = make("button", { type: "button", onclick: () => { wanted = wantedBy(""); read(); fill(); history.replaceState(null, "", "#gallery"); } }, "Clear");
  const read = () => FIELDS.forEach((name) => { controls.get(name).control.value = wanted[name]; });
  read();
  fill();
  if (FIELDS.some((name) => wanted[name])) queueMicrotask(() => $("gallery").scrollIntoView());
  const opened = openByLink(pairs, () => shown, () => wanted);
  addEventListener("hashchange", () => {
    const next = wantedBy(location.hash);
    if (location.hash.includes("=") && FIELDS.some((name) => next[name] !== wanted[name])) {
      wanted = next;
      read();
      fill();
    }
    opened();
  });
  return [...notes, make("div", { class: "fields" }, FIELDS.map((name) => controls.get(name).label), clear), count, listed, more];
}

function filterFields(pairs, set) {
  // By its name in the address: each filter's control, and its label around it.
  const several = (values, shownAs = words) => [...new Set(values)].filter(Boolean).sort().map((value) => [value, shownAs(value)]);
  const models = several(pairs.flatMap((pair) => pair.models), String);
  const select = (title, options, all = "all") => (name) => {
    const { label, select } = choice(title, [["", all], ...options], (value) => set(name, value));
    return { label, control: select };
  };
  const typed = (title, attributes) => (name) => {
    const control = make("input", { ...attributes, oninput: () => set(name, control.value) });
    return { label: make("label", {}, title, control), control };
  };
  const made = {
    kind: select("Pairs of", several(pairs.map((pair) => pair.prompt.kind))),
    task: select("Task", several(pairs.map((pair) => pair.prompt.task))),
    judge: select("Judge", several(pairs.flatMap((pair) => pair.answers.map((each) => each.judge)), String), "any judge"),
    answer: select("Its answer is", ANSWERS, "any"),
    model: select("Model", models, "any"),
    against: select("against", models, "any"),
    tier: select("Tier, or why dropped", several(pairs.map((pair) => pair.outcome))),
    gap: typed("Gap of damage (ΔE), from", { type: "number", min: 0, step: 0.5, placeholder: "0" }),
    sure: typed("Judge's p, from", { type: "number", min: 0.5, max: 1, step: 0.05, placeholder: "0.5" }),
    text: typed("Instruction or key", { type: "search" }),
  };
  return new Map(FIELDS.map((name) => {
    const field = made[name](name);
    field.control.id = `filter-${name}`;
    return [name, field];
  }));
}

function openByLink(pairs, listed, wanted) {
  // The dialog shows the pair that the address names. Returns what looks at the address again.
  const dialog = $("dialog"), byKey = new Map(pairs.map((pair) => [pair.key, pair]));
  let before = null, current = null;
  const go = (step) => {
    const list = listed().includes(current) ? listed() : pairs;
    const next = list[list.indexOf(current) + step];
    if (next) location.replace(addressOf(wanted(), next));
  };
  const close = () => dialog.close();
  dialog.addEventListener("close", () => {
    current = null;
    blink([]);
    history.replaceState(null, "", addressOf(wanted()));
    if (before && before.isConnected) before.focus({ preventScroll: true });
  });
  dialog.addEventListener("click", (event) => event.target === dialog && close());
  dialog.addEventListener("keydown", (event) => {
    if (event.target.matches("input, select")) return;
    if (event.key === "ArrowLeft") go(-1);
    if (event.key === "ArrowRight") go(1);
  });
  async function open() {
    const { pair: key } = wantedBy(location.hash);
    if (!key) { if (dialog.open) close(); return; }
    const pair = byKey.get(key) || null;
    current = pair;
    const button = (text, label, onclick) => make("button", { type: "button", "aria-label": label, onclick }, text);
    const tools = make("div", { class: "tools" }, button("← Previous", "Previous pair", () => go(-1)), button("Next →", "Next pair", () => go(1)),
      make("span", { class: "gap" }), button("Close", "Close", close));
    let lost = null;
    try { if (pair) await withDetails(pair); } catch (error) { lost = nothing(`${error.message}: the measures and regions of this pair are left out.`); }
    if (current !== pair) return; // another one was opened meanwhile
    $("pair").replaceChildren(...(pair ? pairView(pair, tools) : [tools, make("p", {}, "This page has no pair ", own(key), ".")]), lost || "");
    if (!dialog.open) { before = document.activeElement; dialog.showModal(); }
    dialog.scrollTop = 0;
  }
  queueMicrotask(open);
  return open;
}
