// What the page holds: columns as nas/report/page/columns.py packed them, and runs over them.

const ARRAYS = { f8: Float64Array, f4: Float32Array, i4: Int32Array };

/** Decode the page's data: the header, whose columns are read when they are first asked for. */
async function decode(base64) {
  const letters = atob(base64);
  const packed = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) packed[i] = letters.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const length = new DataView(bytes.buffer).getUint32(0, true);
  const text = new TextDecoder();
  const header = JSON.parse(text.decode(bytes.subarray(4, 4 + length)));
  const body = bytes.subarray(4 + length);
  return { ...header, read: (about) => column(body, about, text) };
}

function column(body, about, text) {
  if (about.type === "words") {
    const places = column(body, about.places, text);
    return { words: about.words, places, at: (i) => about.words[places[i]] };
  }
  if (about.type === "lists") {
    const lengths = column(body, about.lengths, text);
    return { starts: starts(lengths), values: column(body, about.values, text) };
  }
  if (about.type === "pieces") {
    const places = starts(column(body, about.lengths, text));
    const whole = column(body, about.texts, text);
    return { at: (i) => text.decode(whole.subarray(places[i], places[i + 1])) };
  }
  const bytes = body.subarray(about.start, about.start + about.bytes);
  if (about.type === "bytes") return bytes;
  if (about.type === "text") return JSON.parse(text.decode(bytes));
  return numbers(bytes, ARRAYS[about.type], about.length);
}

/** Numbers whose bytes are sorted by their place, back in a row. */
function numbers(bytes, type, length) {
  const size = type.BYTES_PER_ELEMENT;
  const sorted = new Uint8Array(bytes.length);
  for (let place = 0; place < size; place++)
    for (let i = 0, from = place * length; i < length; i++) sorted[i * size + place] = bytes[from + i];
  return new type(sorted.buffer);
}

/** Where each of several lists in a row begins, and where the last one ends. */
function starts(lengths) {
  const found = new Int32Array(lengths.length + 1);
  for (let i = 0; i < lengths.length; i++) found[i + 1] = found[i] + lengths[i];
  return found;
}

/** The rows of each key from 0 on: of key k they lie in `rows` from `places[k]` to `places[k + 1]`. */
function grouped(keys, size) {
  const counts = new Int32Array(size);
  for (const key of keys) counts[key]++;
  const places = starts(counts);
  const [next, rows] = [places.slice(), new Int32Array(keys.length)];
  keys.forEach((key, row) => (rows[next[key]++] = row));
  return { places, rows };
}

/** Mean, standard error (not a number of a single one) and count. */
function spread(values) {
  const count = values.length;
  const mean = values.reduce((sum, value) => sum + value, 0) / count;
  const squares = values.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  return { mean, error: count > 1 ? Math.sqrt(squares / (count - 1) / count) : NaN, count };
}
