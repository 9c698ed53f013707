// Decode the page's data: columns as nas/report/page/encoding.py wrote them.

const ARRAYS = { f8: Float64Array, f4: Float32Array, i4: Int32Array };

/** The header, and `read`, which decodes a column that the header names. */
async function decode(base64) {
  const packed = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const length = new DataView(bytes.buffer).getUint32(0, true);
  const text = new TextDecoder();
  const header = JSON.parse(text.decode(bytes.subarray(4, 4 + length)));
  const body = bytes.subarray(4 + length);

  function read(packed) {
    const bytes = body.subarray(packed.start, packed.start + packed.bytes);
    switch (packed.type) {
      case "words": {
        const [words, places] = [read(packed.words), read(packed.places)];
        return { words, places, at: (i) => words[places[i]] };
      }
      case "pieces": {
        const { start, bytes } = packed.texts;
        const [places, whole] = [starts(read(packed.lengths)), body.subarray(start, start + bytes)];
        return { at: (i) => text.decode(whole.subarray(places[i], places[i + 1])) };
      }
      case "text":
        return JSON.parse(text.decode(bytes));
      default:
        return numbers(bytes, ARRAYS[packed.type], packed.length);
    }
  }
  return { header, read };
}

/** Numbers that are stored as all first bytes, then all second bytes and so on. */
function numbers(bytes, type, length) {
  const size = type.BYTES_PER_ELEMENT;
  const sorted = new Uint8Array(bytes.length);
  for (let place = 0; place < size; place++)
    for (let i = 0, from = place * length; i < length; i++) sorted[i * size + place] = bytes[from + i];
  return new type(sorted.buffer);
}

/** The start of each of several concatenated lists, and the end of the last one. */
function starts(lengths) {
  const places = new Int32Array(lengths.length + 1);
  for (let i = 0; i < lengths.length; i++) places[i + 1] = places[i] + lengths[i];
  return places;
}
