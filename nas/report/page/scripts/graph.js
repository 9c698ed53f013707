// A genome's graph as SVG: streams on top, the output at the bottom, colours by role.

const GRAPH = { gap: 22, layer: 66, height: 38, letter: 7.1, top: 8, rounds: 120 };

/** Draw a genome; `fresh` holds the indices of nodes that its parent lacks. */
function graph(genome, roles, fresh = new Set()) {
  const boxes = arranged(bent(laidOut(genome, roles, fresh)));
  const right = Math.max(...boxes.map((box) => box.x + box.width / 2)) + 8;
  const left = Math.min(...boxes.map((box) => box.x - box.width / 2)) - 8;
  const height = (Math.max(...boxes.map((box) => box.layer)) + 1) * GRAPH.layer;
  const edges = boxes.flatMap((box) => box.reads.map((from) => edge(from, box)));
  return svg("svg", { viewBox: `${left} 0 ${right - left} ${height}`, width: right - left, role: "img" },
    svg("title", {}, "Graph of the mechanism"), edges, boxes.filter((box) => !box.isBend).map(shape));
}

/** Boxes with the boxes that they read: each one layer below the deepest of these. */
function laidOut(genome, roles, fresh) {
  const { merge, has_wo, ...projections } = genome.proj_config ?? {};
  const boxes = new Map();
  const add = (ref, words, role, refs, more = "", isNew = false) => {
    const reads = [...new Set(refs)].map((ref) => boxes.get(ref));
    const width = Math.max(words.length, 0.86 * more.length) * GRAPH.letter + 26;
    boxes.set(ref, { words, role, reads, more, isNew, width, layer: 1 + Math.max(-1, ...reads.map((box) => box.layer)) });
  };
  for (const stream of ["q", "k", "v"])
    if (genome.graph_def.some((node) => node.inputs.includes(stream)))
      add(stream, `${stream} = ${projections[`has_w${stream}`] === false ? "x" : `x·W_${stream.toUpperCase()}`}`, "stream", []);
  genome.graph_def.forEach(({ op, inputs, params }, i) => {
    const more = Object.entries(params ?? {}).map(([name, value]) => `${name} ${value}`).join(", ");
    add(i, op.replaceAll("_", " "), roles[op] ?? "other", inputs, more, fresh.has(i));
  });
  const merged = merge === "sum" ? "sum of heads" : "heads side by side";
  const last = genome.graph_def.length - 1;
  add("out", has_wo === false ? merged : `W_O(${merged})`, "stream", last < 0 ? [] : [last]);
  const all = [...boxes.values()];
  for (const box of all.filter(({ reads }) => !reads.length)) {
    // A stream stands just above its first reader.
    const readers = all.filter(({ reads }) => reads.includes(box)).map(({ layer }) => layer);
    if (readers.length) box.layer = Math.min(...readers) - 1;
  }
  return all;
}

/** Long edges pass through a narrow box in each layer between, so that none hides behind a box. */
function bent(boxes) {
  const all = [...boxes];
  for (const box of boxes)
    box.reads = box.reads.map((last) => {
      for (let layer = last.layer + 1; layer < box.layer; layer++) {
        last = { isBend: true, reads: [last], layer, width: 6 };
        all.push(last);
      }
      return last;
    });
  return all.sort((a, b) => a.layer - b.layer);
}

/** Places across: near the boxes that are read and that read, side by side where they overlap. */
function arranged(boxes) {
  const around = new Map(boxes.map((box) => [box, [...box.reads]]));
  for (const box of boxes) for (const other of box.reads) around.get(other).push(box);
  const layers = [...Map.groupBy(boxes, (box) => box.layer).values()];
  let next = 0;
  for (const layer of layers) {
    for (const box of layer) box.x = box.reads.length ? middle(box.reads) : (next += box.width + GRAPH.gap) - box.width / 2;
    separate(layer); // before the next layer, which takes over this one's order
  }
  for (let round = 0; round < GRAPH.rounds; round++) {
    for (const box of boxes) if (around.get(box).length) box.x = 0.5 * box.x + 0.5 * middle(around.get(box));
    layers.forEach(separate);
  }
  return boxes;
}

function middle(boxes) {
  return boxes.reduce((sum, box) => sum + box.x, 0) / boxes.length;
}

/** Move the boxes of a layer apart, in their order, with the least sum of squared moves: isotonic regression. */
function separate(layer) {
  layer.sort((a, b) => a.x - b.x);
  const starts = [0];
  for (let i = 1; i < layer.length; i++)
    starts.push(starts[i - 1] + (layer[i - 1].width + layer[i].width) / 2 + GRAPH.gap);
  const groups = []; // mean place and number of boxes
  layer.forEach((box, i) => {
    let [place, count] = [box.x - starts[i], 1];
    while (groups.length && groups.at(-1)[0] > place) {
      const [before, more] = groups.pop();
      [place, count] = [(place * count + before * more) / (count + more), count + more];
    }
    groups.push([place, count]);
  });
  const places = groups.flatMap(([place, count]) => Array(count).fill(place));
  layer.forEach((box, i) => (box.x = starts[i] + places[i]));
}

/** An edge between two boxes; at a bend it goes straight through. */
function edge(from, to) {
  const y0 = from.layer * GRAPH.layer + GRAPH.top + (from.isBend ? GRAPH.height / 2 : GRAPH.height);
  const y1 = to.layer * GRAPH.layer + GRAPH.top + (to.isBend ? GRAPH.height / 2 : 0);
  const half = (y0 + y1) / 2;
  return svg("path", { class: "edge", d: `M${from.x} ${y0}C${from.x} ${half} ${to.x} ${half} ${to.x} ${y1}` });
}

function shape({ words, role, more, isNew, layer, width, x }) {
  const y = layer * GRAPH.layer + GRAPH.top;
  const isStream = role === "stream";
  return svg("g", { class: `node role-${role}${isNew ? " new" : ""}` },
    svg("title", {}, isStream ? words : `${role}: ${words} ${more}${isNew ? " (new)" : ""}`),
    svg("rect", { x: x - width / 2, y, width, height: GRAPH.height, rx: isStream ? GRAPH.height / 2 : 6 }),
    svg("text", { x, y: y + (more ? 17 : 24), "text-anchor": "middle" }, words),
    more && svg("text", { class: "more", x, y: y + 31, "text-anchor": "middle" }, more));
}
