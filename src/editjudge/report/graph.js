
// --- the graph of stages

const [WIDE, TALL, GAP_X, GAP_Y, LANE] = [150, 40, 18, 34, 14];

function graph(stages) {
  const nodes = stages.filter((node) => node.items !== 0);
  if (!nodes.length) return [nothing("dvc.yaml is not here.")];
  const layers = layersOf(nodes, directReads(nodes));
  const width = Math.max(...layers.map(placeLayer));
  layers.forEach((layer) => centre(layer, width));
  straighten(layers, width);
  const height = layers.length * (TALL + GAP_Y) - GAP_Y + 8;
  const cells = layers.flat();
  const columns = [named("name", "Stage"), { title: "What it does", text: true, long: true, cell: (row) => row.desc },
    { title: "Items", cell: (row) => show(row.items, 0) }, { title: "Records", cell: (row) => show(row.records, 0) },
    { title: "Reads", text: true, long: true, cell: (row) => row.reads.join(", ") || "–" }];
  return [make("p", { class: "note" }, "The stages of dvc.yaml, each beneath what it reads, and how many records each wrote. A line that follows from others is left out; the table has all. Times are not here: the page is the same whenever it is made."),
    scroll("The drawing of the graph", make("svg", { class: "dag", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": "The stages and what they read; the table has the same" },
      cells.flatMap(linesOf), cells.filter((cell) => cell.node).map(boxOf))),
    make("details", {}, make("summary", {}, "As a table"), table(columns, stages, { label: "Stages", kind: "numbers" }))];
}

function directReads(nodes) {
  // Of each stage, what it reads without what it also reaches by way of another stage that it reads.
  const byName = new Map(nodes.map((node) => [node.name, node]));
  const reached = new Map();
  const above = (name) => {
    if (!reached.has(name)) {
      const reads = byName.get(name).reads.filter((other) => byName.has(other));
      reached.set(name, new Set(reads.flatMap((other) => [other, ...above(other)])));
    }
    return reached.get(name);
  };
  return new Map(nodes.map((node) => {
    const reads = node.reads.filter((other) => byName.has(other));
    return [node.name, reads.filter((other) => !reads.some((each) => each !== other && above(each).has(other)))];
  }));
}

function layersOf(nodes, reads) {
  // A layer for each depth. A line across several layers has a lane of its own in each: it cannot run through a box.
  const layers = Array.from({ length: Math.max(...nodes.map((node) => node.depth)) + 1 }, () => []);
  const cells = new Map(nodes.map((node) => [node.name, { node, wide: WIDE, depth: node.depth, from: [] }]));
  for (const cell of cells.values()) layers[cell.depth].push(cell);
  for (const cell of cells.values()) for (const name of reads.get(cell.node.name)) {
    let last = cells.get(name);
    for (let depth = last.depth + 1; depth < cell.depth; depth += 1) {
      const lane = { node: null, wide: LANE, depth, from: [last] };
      layers[depth].push(lane);
      last = lane;
    }
    cell.from.push(last);
  }
  for (const cell of layers.flat()) for (const other of cell.from) (other.to ||= []).push(cell);
  for (let round = 0; round < 12; round += 1) sortLayers(layers, round % 2 === 0);
  return layers;
}

function sortLayers(layers, down) {
  // Each cell goes to the mean place of its neighbours in the layer before: fewer lines cross.
  layers.forEach((layer) => layer.forEach((cell, n) => { cell.at = (n + 0.5) / layer.length; }));
  for (const layer of down ? layers : [...layers].reverse()) {
    const mean = new Map(layer.map((cell) => {
      const near = (down ? cell.from : cell.to) || [];
      return [cell, near.length ? near.reduce((sum, other) => sum + other.at, 0) / near.length : cell.at];
    }));
    layer.sort((a, b) => mean.get(a) - mean.get(b));
    layer.forEach((cell, n) => { cell.at = (n + 0.5) / layer.length; });
  }
}

function placeLayer(layer) {
  // From the left on; returns how wide the layer is.
  let x = GAP_X / 2;
  for (const cell of layer) {
    cell.x = x + cell.wide / 2;
    x += cell.wide + GAP_X;
  }
  return x - GAP_X / 2;
}

function centre(layer, width) {
  const last = layer.at(-1), space = (width - GAP_X / 2 - (last.x + last.wide / 2)) / 2;
  layer.forEach((cell) => { cell.x += space; });
}

function straighten(layers, width) {
  // Cells move towards their neighbours above and below, as far as the ones beside them leave room.
  const rounds = [...layers, ...[...layers].reverse()];
  for (let round = 0; round < 8; round += 1) for (const layer of rounds) layer.forEach((cell, n) => {
    const near = [...cell.from, ...(cell.to || [])];
    if (!near.length) return;
    const apart = (other) => (cell.wide + other.wide) / 2 + GAP_X;
    const least = n ? layer[n - 1].x + apart(layer[n - 1]) : cell.wide / 2 + 2;
    const most = n < layer.length - 1 ? layer[n + 1].x - apart(layer[n + 1]) : width - cell.wide / 2 - 2;
    const wanted = near.reduce((sum, other) => sum + other.x, 0) / near.length;
    if (least <= most) cell.x = Math.min(Math.max(wanted, least), most);
  });
}

const topOf = (cell) => cell.depth * (TALL + GAP_Y) + 4;
function linesOf(cell) {
  // Curves between layers, straight through the layer of a lane.
  const y = topOf(cell), straight = cell.node ? "" : ` V${y + TALL}`;
  return cell.from.map((other) => {
    const from = topOf(other) + TALL, middle = (from + y) / 2;
    return make("path", { d: `M${other.x} ${from} C${other.x} ${middle} ${cell.x} ${middle} ${cell.x} ${y}${straight}` });
  });
}

function boxOf({ node, x, depth }) {
  const y = topOf({ depth });
  const label = node.items === null ? node.name : `${node.name} ×${node.items}`;
  return make("g", {}, make("title", {}, node.desc), make("rect", { x: x - WIDE / 2, y, width: WIDE, height: TALL, rx: 6 }),
    make("text", { x, y: y + (node.records ? 17 : 24), "text-anchor": "middle" }, label),
    node.records ? make("text", { x, y: y + 32, "text-anchor": "middle", class: "count" }, counted(node.records, "record")) : null);
}
