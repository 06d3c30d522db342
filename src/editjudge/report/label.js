// Labelling: one pair after the other. The server says which edit is shown as A; no model's name comes here.

const KEYS = { a: "Image A", ArrowLeft: "Image A", b: "Image B", ArrowRight: "Image B", t: "Tie", ArrowDown: "Tie", s: "Skip", u: "Undo", Backspace: "Undo" };
const ANSWERS = [["Image A", "A is better", "A"], ["Tie", "Tie", "T"], ["Image B", "B is better", "B"], ["Skip", "Skip", "S"], ["Undo", "Undo", "U"]];

function labelPage(told) {
  const head = document.querySelector("h1");
  head.textContent = DIMENSIONS[told.dimension];
  let rater = "", state = null, ready = false, busy = false, below = false;
  const remembered = (() => { try { return sessionStorage.getItem("rater") || ""; } catch { return ""; } })();
  const name = make("input", { type: "search", required: true, maxlength: "100", value: remembered, autocomplete: "name" });
  const beginning = make("form", { class: "fields", onsubmit: (event) => { event.preventDefault(); begin(); } },
    make("label", { class: "wide" }, "Your name: your answers are kept under it, and you go on where you stopped", name), make("button", { type: "submit", class: "go" }, "Begin"),
    make("p", { class: "note whole" }, "You see a source and two edits. Who made them is hidden, and sides change from pair to pair. Keys answer, too: A, B or T (or arrows), S skips, U takes the last answer back, O shows the source in the place of the edits."));
  const asked = make("section", { class: "asked", hidden: true, tabindex: "-1", "aria-label": "Pair" });
  const agreed = make("div"), agreement = make("details", { hidden: true, ontoggle: () => agreement.open && showAgreement() }, make("summary", {}, "Agreement"), agreed);

  const url = (pair, side) => `image/${pair}/${side}?rater=${encodeURIComponent(rater)}`;
  const send = (pair, answer) => ask(`answer/${pair}/${encodeURIComponent(answer)}?rater=${encodeURIComponent(rater)}`, { method: "POST" });

  async function begin() {
    rater = name.value;
    await trying(async () => {
      show(await send(0, "Look"));
      try { sessionStorage.setItem("rater", rater); } catch { /* it is typed again */ }
      beginning.hidden = true;
      asked.hidden = agreement.hidden = false;
      asked.focus();
    });
  }
  async function give(answer) {
    const undo = answer === "Undo";
    if (busy || !state || (undo ? !state.answers : !state.next.length || (!ready && answer !== "Skip"))) return;
    busy = true;
    await trying(async () => {
      show(await send(state.next.length ? state.next[0].pair : 0, answer));
      if (agreement.open) await showAgreement();
    });
    busy = false;
  }
  function enable() {
    asked.querySelectorAll("button[data-answer]").forEach((button) => {
      const { answer } = button.dataset;
      button.disabled = answer === "Undo" ? !state.answers : !state.next.length || (!ready && answer !== "Skip");
    });
  }
  function show(given) {
    state = given;
    ready = false;
    const [pair, after] = state.next;
    const done = state.pairs - state.left, buttons = ANSWERS.map(([answer, text, key]) =>
      make("button", { type: "button", "data-answer": answer, onclick: () => give(answer) }, `${text} `, make("kbd", {}, key)));
    const progress = [make("progress", { value: done, max: state.pairs, "aria-label": "Answered" }), make("p", { class: "note", role: "status" }, `${done} of ${counted(state.pairs, "pair")} answered`)];
    if (!pair) {
      asked.replaceChildren(...progress, make("p", { class: "instruction" }, "That was the last one. Thank you."), make("div", { class: "answers" }, buttons.at(-1)));
      enable();
      return;
    }
    const images = [0, 1, 2].map((side) => picture({ file: url(pair.pair, side) }, ["Source", "Edit A", "Edit B"][side]));
    const figures = images.map((image, side) => make("figure", {}, make("figcaption", {}, make("strong", {}, image.alt)),
      make("div", { class: "stack" }, side ? picture({ file: url(pair.pair, 0) }, "") : null, side ? make("div", { class: "over" }, image) : image)));
    const flip = make("button", { type: "button", "aria-pressed": "false", onclick: () => {
      below = !below;
      flip.setAttribute("aria-pressed", String(below));
      figures.slice(1).forEach((figure) => figure.classList.toggle("below", below));
    } }, "Show source ", make("kbd", {}, "O"));
    below = false;
    flip.dataset.key = "o";
    asked.replaceChildren(...progress, make("p", { class: "soft who" }, pair.task ? words(pair.task) : ""), make("p", { class: "instruction", dir: "auto" }, pair.instruction),
      make("div", { class: "views" }, figures), make("div", { class: "answers" }, buttons, flip));
    enable();
    Promise.all(images.map((image) => image.decode())).then(() => { if (state === given) { ready = true; enable(); } },
      () => { if (state === given) $("problem").textContent = "An image is missing or broken: skip this pair."; });
    if (after) [0, 1, 2].forEach((side) => { new Image().src = url(after.pair, side); });
  }
  addEventListener("keydown", (event) => {
    if (asked.hidden || event.ctrlKey || event.metaKey || event.altKey || event.repeat || /^(INPUT|SELECT)$/.test(event.target.tagName)) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (key === "o") asked.querySelector("[data-key]")?.click();
    if (!KEYS[key]) return;
    event.preventDefault();
    give(KEYS[key]);
  });

  async function showAgreement() {
    const rows = await ask("agreement");
    const both = { text: true, cell: (row) => own(row.first) };
    const columns = [{ title: "Rater", header: true, ...both }, named("second", "With"), { title: "Pairs", cell: (row) => String(row.scored) },
      { title: "Same answer", cell: (row) => (known(row.observed) ? percent(row.observed) : "–") },
      { title: "Cohen's kappa", cell: (row) => interval({ ...row, value: row.kappa }, 2) }];
    agreed.replaceChildren(rows.length ? table(columns, rows, { label: "Agreement" }) : nothing("Nobody else has answered, and no judge's verdicts were given (--verdicts)."),
      make("p", { class: "note" }, "Kappa is 1 for full agreement and 0 for that of chance; its 95 % interval goes over photos or prompts."));
  }
  if (remembered) setTimeout(() => name.select());
  return [beginning, asked, agreement];
}
