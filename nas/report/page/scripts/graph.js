// A genome's graph as SVG: streams on top, the output at the bottom, colours by role.
// nas/report/graph.py places the boxes of `nas show --plot` in the same way; a test compares both.

const [GAP, LAYER, BOX_HEIGHT, LETTER] = [22, 66, 38, 7.1];
const ROUNDS = 120;

/** Draw a genome; `fresh` holds the nodes that its parent has not. */
function graph(genome, roles, fresh = new Set()) {
  const boxes = arranged(bent(laidOut(genome)));
  const right = Math.max(...boxes.map((box) => box.x + box.width / 2)) + 8;
  const left = Math.min(...boxes.map((box) => box.x - box.width / 2)) - 8;
  const height = (Math.max(...boxes.map((box) => box.layer)) + 1) * LAYER;
  const by = new Map(boxes.map((box) => [box.ref, box]));
  const edges = boxes.flatMap((box) => box.inputs.map((ref) => edge(by.get(ref), box)));
  const shapes = boxes.filter((box) => box.kind !== "bend").map((box) => shape(box, roles, fresh));
  return svg("svg", { viewBox: `${left} 0 ${right - left} ${height}`, width: right - left, role: "img" },
    svg("title", {}, "Graph of the mechanism"), edges, shapes);
}

/** Boxes with what they read and their layer: one below the deepest that they read. */
function laidOut(genome) {
  const projections = genome.proj_config ?? {};
  const used = ["q", "k", "v"].filter((stream) => genome.graph_def.some((node) => node.inputs.includes(stream)));
  const boxes = used.map((stream) => {
    const isProjected = projections[`has_w${stream}`] !== false;
    const words = isProjected ? `x·W_${stream.toUpperCase()}` : "x";
    return { ref: stream, words: `${stream} = ${words}`, more: "", inputs: [], layer: 0, kind: "stream" };
  });
  const layers = new Map(used.map((stream) => [stream, 0]));
  genome.graph_def.forEach((node, i) => {
    layers.set(i, 1 + Math.max(0, ...node.inputs.map((ref) => layers.get(ref) ?? 0)));
    const more = Object.entries(node.params ?? {}).map(([name, value]) => `${name} ${value}`).join(", ");
    boxes.push({ ref: i, words: node.op.replaceAll("_", " "), op: node.op, more, inputs: [...new Set(node.inputs)], layer: layers.get(i), kind: "node" });
  });
  const last = genome.graph_def.length - 1;
  const merged = projections.merge === "sum" ? "sum of heads" : "heads side by side";
  const words = projections.has_wo === false ? merged : `W_O(${merged})`;
  boxes.push({ ref: "out", words, more: "", inputs: last >= 0 ? [last] : [], layer: (layers.get(last) ?? 0) + 1, kind: "stream" });
  for (const box of boxes) box.width = Math.max(box.words.length, 0.86 * box.more.length) * LETTER + 26;
  return late(boxes);
}

/** Streams come down to just above their first reader. */
function late(boxes) {
  for (const box of boxes.filter((one) => one.inputs.length === 0)) {
    const readers = boxes.filter((one) => one.inputs.includes(box.ref)).map((one) => one.layer);
    if (readers.length) box.layer = Math.min(...readers) - 1;
  }
  return boxes;
}

/** Long edges pass through a narrow box in each layer between, so that none hides behind a box. */
function bent(boxes) {
  const by = new Map(boxes.map((box) => [box.ref, box]));
  const all = [...boxes];
  for (const box of boxes)
    box.inputs = box.inputs.map((ref) => {
      let last = by.get(ref);
      for (let layer = last.layer + 1; layer < box.layer; layer++) {
        const bend = { ref: `${ref}>${box.ref}@${layer}`, inputs: [last.ref], layer, width: 6, kind: "bend" };
        by.set(bend.ref, bend);
        all.push(bend);
        last = bend;
      }
      return last.ref;
    });
  return all.sort((a, b) => a.layer - b.layer);
}

/** Places across: near what is read and what reads, beside each other where they would overlap. */
function arranged(boxes) {
  const by = new Map(boxes.map((box) => [box.ref, box]));
  const around = new Map(boxes.map((box) => [box, []]));
  for (const box of boxes)
    for (const ref of box.inputs) {
      around.get(box).push(by.get(ref));
      around.get(by.get(ref)).push(box);
    }
  const layers = [...Map.groupBy(boxes, (box) => box.layer).values()];
  let next = 0;
  for (const own of layers) {
    for (const box of own)
      box.x = box.inputs.length ? mean(box.inputs.map((ref) => by.get(ref).x)) : (next += box.width + GAP) - box.width / 2;
    apart(own); // before the next layer, which takes over this one's order
  }
  for (let round = 0; round < ROUNDS; round++) {
    for (const box of boxes)
      if (around.get(box).length) box.x = 0.5 * box.x + 0.5 * mean(around.get(box).map((other) => other.x));
    layers.forEach(apart);
  }
  return boxes;
}

/** Push boxes of a layer apart. */
function apart(own) {
  own.sort((a, b) => a.x - b.x);
  for (let round = 0; round < own.length; round++)
    for (let i = 1; i < own.length; i++) {
      const room = (own[i].width + own[i - 1].width) / 2 + GAP - (own[i].x - own[i - 1].x);
      if (room > 0) [own[i].x, own[i - 1].x] = [own[i].x + room / 2, own[i - 1].x - room / 2];
    }
}

/** A wire between two boxes; at a bend it goes straight through. */
function edge(from, to) {
  const y0 = from.layer * LAYER + (from.kind === "bend" ? 8 + BOX_HEIGHT / 2 : 8 + BOX_HEIGHT);
  const y1 = to.layer * LAYER + (to.kind === "bend" ? 8 + BOX_HEIGHT / 2 : 8);
  const middle = (y0 + y1) / 2;
  return svg("path", { class: "edge", d: `M${from.x} ${y0}C${from.x} ${middle} ${to.x} ${middle} ${to.x} ${y1}` });
}

function shape(box, roles, fresh) {
  const role = box.kind === "stream" ? "stream" : roles[box.op] ?? "other";
  const y = box.layer * LAYER + 8;
  const isNew = fresh.has(box.ref);
  return svg("g", { class: `node role-${role}${isNew ? " new" : ""}` },
    svg("title", {}, box.kind === "stream" ? box.words : `${role}: ${box.words} ${box.more}${isNew ? " (new)" : ""}`),
    svg("rect", { x: box.x - box.width / 2, y, width: box.width, height: BOX_HEIGHT, rx: box.kind === "stream" ? 19 : 6 }),
    svg("text", { x: box.x, y: y + (box.more ? 17 : 24), "text-anchor": "middle" }, box.words),
    box.more && svg("text", { class: "more", x: box.x, y: y + 31, "text-anchor": "middle" }, box.more));
}

function mean(values) {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
