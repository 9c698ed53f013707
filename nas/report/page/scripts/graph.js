// A genome's graph as SVG: streams on top, the output at the bottom, colours by role.

import { svg } from "./dom.js";

const [GAP, LAYER, HEIGHT, LETTER] = [22, 66, 38, 7.1];

/** Draw a genome; `fresh` holds the nodes that its parent has not. */
export function graph(genome, roles, fresh = new Set()) {
  const boxes = arranged(laidOut(genome));
  const right = Math.max(...boxes.map((box) => box.x + box.width / 2)) + 8;
  const left = Math.min(...boxes.map((box) => box.x - box.width / 2)) - 8;
  const height = (Math.max(...boxes.map((box) => box.layer)) + 1) * LAYER;
  const by = new Map(boxes.map((box) => [box.ref, box]));
  const edges = boxes.flatMap((box) => box.inputs.map((ref) => edge(by.get(ref), box)));
  const shapes = boxes.map((box) => shape(box, roles, fresh));
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

/** Places across: under what is read, beside each other where they would overlap. */
function arranged(boxes) {
  const by = new Map(boxes.map((box) => [box.ref, box]));
  let next = 0;
  for (const box of boxes) {
    box.x = box.inputs.length ? mean(box.inputs.map((ref) => by.get(ref).x)) : (next += box.width + GAP) - box.width / 2;
  }
  for (let round = 0; round < 8; round++) {
    for (const box of boxes) {
      const readers = boxes.filter((one) => one.inputs.includes(box.ref));
      const around = [...box.inputs.map((ref) => by.get(ref).x), ...readers.map((one) => one.x)];
      if (around.length && (round % 2 || box.inputs.length)) box.x = 0.4 * box.x + 0.6 * mean(around);
    }
    apart(boxes);
  }
  return boxes;
}

/** Push boxes of a layer, and wires that pass through it, apart. */
function apart(boxes) {
  const layers = Map.groupBy(boxes, (box) => box.layer);
  for (const own of layers.values()) {
    own.sort((a, b) => a.x - b.x);
    for (let round = 0; round < own.length; round++)
      for (let i = 1; i < own.length; i++) {
        const room = (own[i].width + own[i - 1].width) / 2 + GAP - (own[i].x - own[i - 1].x);
        if (room > 0) [own[i].x, own[i - 1].x] = [own[i].x + room / 2, own[i - 1].x - room / 2];
      }
  }
}

function edge(from, to) {
  const [y0, y1] = [from.layer * LAYER + 8 + HEIGHT, to.layer * LAYER + 8];
  const bend = Math.max(14, (y1 - y0) / 2);
  return svg("path", { class: "edge", d: `M${from.x} ${y0}C${from.x} ${y0 + bend} ${to.x} ${y1 - bend} ${to.x} ${y1}` });
}

function shape(box, roles, fresh) {
  const role = box.kind === "stream" ? "stream" : roles[box.op] ?? "other";
  const y = box.layer * LAYER + 8;
  const isNew = fresh.has(box.ref);
  return svg("g", { class: `node role-${role}${isNew ? " new" : ""}` },
    svg("title", {}, box.kind === "stream" ? box.words : `${role}: ${box.words} ${box.more}${isNew ? " (new)" : ""}`),
    svg("rect", { x: box.x - box.width / 2, y, width: box.width, height: HEIGHT, rx: box.kind === "stream" ? 19 : 6 }),
    svg("text", { x: box.x, y: y + (box.more ? 17 : 24), "text-anchor": "middle" }, box.words),
    box.more && svg("text", { class: "more", x: box.x, y: y + 31, "text-anchor": "middle" }, box.more));
}

function mean(values) {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
