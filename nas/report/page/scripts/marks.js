// Marks on a canvas. Each kind of number has a shape: ring, disc, square or diamond.

const TURN = 2 * Math.PI;
const DOT = 3; // pixels, the radius of a dot of the cloud

/** Reads the current (light or dark) colours of the style sheet through an element without text. */
function colours(element) {
  return (name) => {
    element.style.color = `var(--${name})`;
    return getComputedStyle(element).color;
  };
}

/** A context whose unit is a pixel of the page, sharp on every screen. */
function sharpened(canvas, width, height) {
  const ratio = devicePixelRatio || 1;
  Object.assign(canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
  Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

/** Draw the points whose mask has the value, as dots or rings that do not darken where they overlap. */
function cloud(context, xs, ys, mask, value, { colour, alpha, isRing }) {
  const { width, height } = context.canvas;
  const ratio = context.getTransform().a;
  const size = 2 * Math.ceil((DOT + 1) * ratio);
  const stamp = new OffscreenCanvas(size, size);
  const layer = new OffscreenCanvas(width, height).getContext("2d");
  const pen = stamp.getContext("2d");
  Object.assign(pen, { fillStyle: colour, strokeStyle: colour, lineWidth: ratio });
  pen.arc(size / 2, size / 2, DOT * ratio, 0, TURN);
  if (isRing) pen.stroke();
  else pen.fill();
  for (let i = 0; i < xs.length; i++)
    if (mask[i] === value && xs[i] >= 0)
      layer.drawImage(stamp, Math.round(xs[i] * ratio) - size / 2, Math.round(ys[i] * ratio) - size / 2);
  context.save();
  context.resetTransform();
  context.globalAlpha = alpha;
  context.drawImage(layer.canvas, 0, 0);
  context.restore();
}

/** One mark with a thin edge of the paper's colour. */
function mark(context, shape, x, y, size, colour, paper) {
  context.beginPath();
  if (shape === "square") context.rect(x - size * 0.9, y - size * 0.9, size * 1.8, size * 1.8);
  else if (shape === "disc") context.arc(x, y, size, 0, TURN);
  else {
    const wide = size * 1.35;
    for (const [a, b] of [[0, -wide], [wide, 0], [0, wide], [-wide, 0]]) context.lineTo(x + a, y + b);
    context.closePath();
  }
  Object.assign(context, { fillStyle: colour, strokeStyle: paper, lineWidth: 1.5 });
  context.fill();
  context.stroke();
}

function stroke(context, colour, width, ...points) {
  Object.assign(context, { strokeStyle: colour, lineWidth: width });
  context.beginPath();
  for (const [x, y] of points) context.lineTo(x, y);
  context.stroke();
}
