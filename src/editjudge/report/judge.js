// Judging: three images, boxes drawn on the source, and what a judge and the measures say.

const PICTURES = { source: "Source", a: "Edit A", b: "Edit B" };

function judgePage(told) {
  const files = {}, urls = {}, zones = {};
  let boxes = [], size = null;

  // --- images: chosen, dropped (several at once fill the places in order), or pasted by the file dialog
  function put(name, file) {
    if (urls[name]) URL.revokeObjectURL(urls[name]);
    files[name] = file;
    urls[name] = URL.createObjectURL(file);
    const img = make("img", { alt: PICTURES[name], draggable: "false" });
    img.addEventListener("error", () => zones[name].replaceChildren(noPicture("This is no PNG, JPEG or WebP image.")));
    img.addEventListener("load", () => {
      zones[name].style.setProperty("--ratio", img.naturalWidth / img.naturalHeight);
      if (name === "source") { size = [img.naturalWidth, img.naturalHeight]; setBoxes([]); }
    });
    img.src = urls[name];
    zones[name].replaceChildren(img, ...(name === "source" ? [drawing] : []));
    result.replaceChildren();
  }
  function fill(name, given) {
    const names = Object.keys(PICTURES), from = names.indexOf(name);
    [...given].slice(0, names.length - from).forEach((file, n) => put(names[from + n], file));
  }
  function zone(name) {
    const input = make("input", { type: "file", accept: "image/png,image/jpeg,image/webp", multiple: true, onchange: () => { fill(name, input.files); input.value = ""; } });
    const place = make("div", { class: "zone" }, make("span", { class: "none" }, "or drop it here"));
    zones[name] = place;
    const over = (on) => (event) => { event.preventDefault(); place.classList.toggle("over", on); };
    place.addEventListener("dragover", over(true));
    place.addEventListener("dragleave", over(false));
    place.addEventListener("drop", (event) => { over(false)(event); fill(name, event.dataTransfer.files); });
    return make("figure", {}, make("figcaption", {}, make("label", {}, make("strong", {}, PICTURES[name]), make("span", { class: "choose" }, "Choose"), input)), place);
  }
  for (const kind of ["dragover", "drop"]) addEventListener(kind, (event) => event.preventDefault()); // a miss opens nothing

  // --- boxes, in pixels of the source: drawn by a pointer, or typed
  const drawing = make("svg", { class: "drawing", preserveAspectRatio: "none", "aria-hidden": "true" });
  const typed = make("input", { type: "search", placeholder: "x0 y0 x1 y1, and more after a semicolon", onchange: () => setBoxes(parsed(typed.value)) });
  function parsed(text) {
    const given = text.split(";").filter((each) => each.trim()).map((each) => each.trim().split(/[\s,]+/).map(Number));
    const wrong = given.find((box) => box.length !== 4 || !box.every(Number.isInteger));
    $("problem").textContent = wrong ? "A box is four whole numbers: x0 y0 x1 y1." : "";
    return wrong ? boxes : given;
  }
  function setBoxes(given) {
    boxes = given;
    typed.value = boxes.map((box) => box.join(" ")).join("; ");
    undo.disabled = !boxes.length;
    showBoxes();
  }
  function showBoxes(more = []) {
    if (!size) return;
    drawing.setAttribute("viewBox", `0 0 ${size[0]} ${size[1]}`);
    drawing.replaceChildren(...[...boxes, ...more].map((box) => shapeOf("boxes", box)));
  }
  const undo = make("button", { type: "button", disabled: true, onclick: () => setBoxes(boxes.slice(0, -1)) }, "Remove the last box");
  let start = null;
  const at = (event) => {
    const { left, top, width, height } = drawing.getBoundingClientRect();
    return [[event.clientX - left, width, size[0]], [event.clientY - top, height, size[1]]].map(([place, shown, whole]) => Math.min(Math.max(Math.round((place / shown) * whole), 0), whole));
  };
  const span = ([x, y], [u, v]) => [Math.min(x, u), Math.min(y, v), Math.max(x, u), Math.max(y, v)];
  drawing.addEventListener("pointerdown", (event) => { if (size) { start = at(event); drawing.setPointerCapture(event.pointerId); event.preventDefault(); } });
  drawing.addEventListener("pointermove", (event) => start && showBoxes([span(start, at(event))]));
  drawing.addEventListener("pointercancel", () => { start = null; showBoxes(); });
  drawing.addEventListener("pointerup", (event) => {
    if (!start) return;
    const box = span(start, at(event));
    start = null;
    setBoxes(box[2] - box[0] > 1 && box[3] - box[1] > 1 ? [...boxes, box] : boxes);
  });

  // --- what is asked
  const instruction = make("input", { type: "search", required: true, maxlength: "2000", placeholder: "What was asked for: Make the car red" });
  const judges = Object.entries(told.judges).map(([name, backend]) => ({ name, backend, tiny: told.tiny.includes(name) })).sort((one, other) => (other.backend === "measures") - (one.backend === "measures"));
  const judge = choice("Judge", judges.map(({ name, tiny }) => [name, tiny ? `${name} (tiny demonstration)` : name]), () => hint());
  const task = choice("Task", [["", "none"], ...told.tasks.map((name) => [name, words(name)])], () => hint());
  const about = choice("Asked", Object.entries(DIMENSIONS), () => hint());
  const chosen = () => judges.find(({ name }) => name === judge.select.value);
  const needs = () => chosen().backend === "measures" && !task.select.value && about.select.value !== "visual_quality";
  const note = make("p", { class: "note" });
  function hint() {
    note.textContent = needs() ? "The judge by measures looks at what must not change: choose a task and, for most of them, draw a box." :
      chosen().tiny ? "This tiny judge shows how it works: it sees how much changed, not where. Use measures or a real model to judge." : "";
  }
  const result = make("section", { class: "result", "aria-live": "polite", "aria-label": "Verdict" });
  const go = make("button", { type: "submit", class: "go" }, "Compare");
  const form = make("form", { onsubmit: (event) => { event.preventDefault(); compare(); } },
    make("div", { class: "views" }, Object.keys(PICTURES).map(zone)),
    make("p", { class: "note" }, "Drop three images at once, or one by one. Draw boxes on the source where the edit is to be."),
    make("div", { class: "fields" }, make("label", { class: "wide" }, "Instruction", instruction), task.label, about.label, judge.label),
    make("div", { class: "fields" }, make("label", { class: "wide" }, "Boxes, in pixels of the source", typed), undo, go), note);
  hint();

  async function compare() {
    await trying(async () => {
      const missing = Object.keys(PICTURES).filter((name) => !files[name]);
      if (missing.length) throw new Error(`Drop ${missing.map((name) => PICTURES[name].toLowerCase()).join(", ")} first.`);
      if (needs()) throw new Error(note.textContent);
      form.inert = go.disabled = true; // the verdict is of the pair that stands there
      go.textContent = "Comparing …";
      const body = { instruction: instruction.value, judge: judge.select.value, dimension: about.select.value, task: task.select.value || null, boxes };
      for (const name of Object.keys(PICTURES)) body[name] = await encoded(files[name]);
      const found = await ask("compare", { method: "POST", body: JSON.stringify(body) });
      result.replaceChildren(...shown(found, { ...chosen() }));
      result.scrollIntoView({ block: "nearest" });
    });
    form.inert = go.disabled = false;
    go.textContent = "Compare";
  }
  async function encoded(file) {
    const url = await new Promise((done, failed) => {
      const reader = new FileReader();
      reader.onload = () => done(reader.result);
      reader.onerror = () => failed(new Error(`${file.name} cannot be read.`));
      reader.readAsDataURL(file);
    });
    return url.slice(url.indexOf(",") + 1);
  }

  // --- what is said of it
  const NAMES = { "Image A": "Edit A", "Image B": "Edit B", Tie: "a tie" };
  const said = (answer) => NAMES[answer.winner] || `no verdict: ${answer.reason}`;
  function shown(found, asked) {
    const head = !found.winner ? `No verdict: ${found.reason}` : found.undecided ? "Undecided: the verdict changes with the order of the edits." :
      found.winner === "Tie" ? "A tie." : `${NAMES[found.winner]} is better.`;
    const orders = [["A, then B", found.forward], ["B, then A", found.backward], ["both", found]].map(([order, answer]) => ({ order, ...answer }));
    const columns = [named("order", "Shown", { header: true }), { title: "Better", text: true, long: true, cell: (row) => (row.order === "both" && found.undecided ? "undecided" : own(said(row))) }, ...(orders.some((row) => known(row.p_a)) ? [column("p_a", "p(A is better)", 3)] : [])];
    return [make("h2", {}, own(head)),
      asked.tiny ? make("p", { class: "note" }, `${asked.name} is a tiny judge for demonstration: it sees how much changed, not where.`) : null,
      make("div", { class: "found" }, make("div", {}, table(columns, orders, { label: "Verdict by order" }), measured(found.edits)), make("div", {}, differences()))].filter(Boolean);
  }
  function measured([a, b]) {
    const rows = Object.keys(a.values).map((name) => {
      const [area, measure] = [name.slice(0, name.lastIndexOf(".")), name.slice(name.lastIndexOf(".") + 1)];
      const values = [a.values[name], b.values[name]], gain = a.directions[name] * (values[0] - values[1]);
      const better = values.includes(null) ? a.reasons[name] || b.reasons[name] || "not measured" : gain === 0 ? "equal" : gain > 0 ? "A" : "B";
      return { measure: `${measure} ${a.directions[name] > 0 ? "↑" : "↓"}`, area: words(area), a: values[0], b: values[1], better };
    });
    const columns = [named("measure", "Measure", { header: true }), named("area", "Area"), { title: "A", cell: (row) => short(row.a) }, { title: "B", cell: (row) => short(row.b) }, named("better", "Better", { long: true })];
    return rows.length ? [make("h3", {}, "Measures"), make("p", { class: "note" }, "↑ higher is better, ↓ lower: the edit area is in the boxes, the unedit area is what had to stay."), table(columns, rows, { label: "Measures" })] : [];
  }
  function differences() {
    // What changed, bright; what lies in the boxes is veiled, so that changes of what had to stay stand out.
    const map = (name) => make("figure", {}, make("figcaption", {}, make("strong", {}, PICTURES[name])),
      make("div", { class: "stack", style: { "aspect-ratio": `${size[0]} / ${size[1]}`, "--ratio": size[0] / size[1] } },
        make("div", { class: "heatmap", role: "img", "aria-label": `Where ${PICTURES[name]} differs from the source` },
          make("img", { src: urls.source, alt: "" }), make("div", { class: "over" }, make("img", { src: urls[name], alt: "" }))),
        make("svg", { viewBox: `0 0 ${size[0]} ${size[1]}`, preserveAspectRatio: "none", "aria-hidden": "true" }, boxes.map((box) => shapeOf("boxes", box)))));
    return [make("h3", {}, "Differences to the source"),
      make("p", { class: "note" }, "No difference ", make("span", { class: "ramp", "aria-hidden": "true" }), ` a quarter of the range or more.${boxes.length ? " The boxes are veiled: what is bright outside of them should have stayed." : ""}`),
      make("div", { class: "views two" }, map("a"), map("b"))];
  }
  return [form, result];
}
