// The edits from one genome to another, found by aligning their nodes in order.

/** Edits from parent to child as texts, and the indices of the child's added nodes. */
function edits(parent, child) {
  const pairs = aligned(parent.graph_def, child.graph_def);
  const [kept, added, removed, changed] = [new Map(), [], [], []];
  for (const [from, to] of pairs) {
    if (from === null) added.push(to);
    else if (to === null) removed.push(from);
    else {
      kept.set(to, from);
      changed.push(...parameters(parent.graph_def[from], child.graph_def[to]));
    }
  }
  const texts = [
    ...swaps(parent.graph_def, child.graph_def, pairs),
    ...changed,
    ...(added.length || removed.length ? [] : rewired(parent.graph_def, child.graph_def, kept)),
    ...fields(parent, child),
  ];
  return { texts, fresh: new Set(added) };
}

/** Pairs of nodes that are the same operation, in order; null stands for a missing partner. */
function aligned(from, to) {
  const best = Array.from({ length: from.length + 1 }, () => new Float64Array(to.length + 1));
  for (let i = from.length - 1; i >= 0; i--)
    for (let j = to.length - 1; j >= 0; j--)
      best[i][j] = Math.max(best[i + 1][j], best[i][j + 1], likeness(from[i], to[j]) + best[i + 1][j + 1]);
  const pairs = [];
  let [i, j] = [0, 0];
  while (i < from.length || j < to.length) {
    const likely = i < from.length && j < to.length ? likeness(from[i], to[j]) : 0;
    if (likely > 0 && best[i][j] === likely + best[i + 1][j + 1]) pairs.push([i++, j++]);
    else if (j >= to.length || (i < from.length && best[i + 1][j] >= best[i][j + 1])) pairs.push([i++, null]);
    else pairs.push([null, j++]);
  }
  return pairs;
}

function likeness(a, b) {
  if (a.op !== b.op) return 0;
  const same = JSON.stringify(a.params ?? {}) === JSON.stringify(b.params ?? {});
  const reads = JSON.stringify(a.inputs) === JSON.stringify(b.inputs);
  return 2 + (same ? 0.5 : 0) + (reads ? 0.25 : 0);
}

/** Removed and added nodes as texts; a removed and an added node between kept ones are a swap. */
function swaps(from, to, pairs) {
  const texts = [];
  let [removed, added] = [[], []];
  for (const [i, j] of [...pairs, []]) {
    if (j === null) removed.push(from[i].op);
    else if (i === null) added.push(to[j].op);
    else {
      while (removed.length && added.length) texts.push(`${removed.shift()} → ${added.shift()}`);
      texts.push(...removed.map((name) => `− ${name}`), ...added.map((name) => `+ ${name}`));
      [removed, added] = [[], []];
    }
  }
  return texts;
}

function parameters(from, to) {
  const [before, after] = [from.params ?? {}, to.params ?? {}];
  return [...new Set([...Object.keys(before), ...Object.keys(after)])]
    .filter((name) => before[name] !== after[name])
    .map((name) => `${to.op}: ${name} ${before[name] ?? "default"} → ${after[name] ?? "default"}`);
}

function rewired(from, to, kept) {
  return [...kept]
    .filter(([child, parent]) => {
      const inputs = to[child].inputs.map((ref) => kept.get(ref) ?? ref);
      return JSON.stringify(inputs) !== JSON.stringify(from[parent].inputs);
    })
    .map(([child]) => `${to[child].op} reads ${to[child].inputs.join(", ")}`);
}

/** A placement's word, or its fields that differ from their defaults, as text. */
function placement({ placement: value = "all" }) {
  return typeof value === "string" ? value : Object.entries(value).map((pair) => pair.join("=")).join(" ");
}

/** Projections, placement and window. */
function fields(parent, child) {
  const flat = (genome) => ({ ...genome.proj_config, placement: placement(genome), ...genome.visibility });
  const defaults = {
    q_heads: "all", kv_heads: "all", qk_dim: "all", raw: "slice", merge: "concat", placement: "all",
    window: null, global_tokens: 0, has_wq: true, has_wk: true, has_wv: true, has_wo: true,
  };
  const [before, after] = [flat(parent), flat(child)];
  return Object.entries(defaults)
    .map(([name, usual]) => [name, before[name] ?? usual, after[name] ?? usual])
    .filter(([, was, is]) => was !== is)
    .map(([name, was, is]) =>
      name.startsWith("has_") ? `${is ? "+" : "−"} W_${name.at(-1).toUpperCase()}`
        : `${name.replaceAll("_", " ")} ${was ?? "none"} → ${is ?? "none"}`);
}

/** Steps back to the first ancestor, each to the parent with the fewest edits. */
function lineage(run, i) {
  const steps = [];
  const visited = new Set();
  while (i >= 0 && !visited.has(i)) {
    visited.add(i);
    const child = run.genome(i);
    const [near, ...others] = run.parents(i)
      .map((from) => ({ from, ...edits(run.genome(from), child) }))
      .sort((a, b) => a.texts.length - b.texts.length);
    steps.push({ i, from: -1, texts: [], fresh: new Set(), ...near, others: others.map(({ from }) => from) });
    i = near?.from ?? -1;
  }
  return steps;
}
