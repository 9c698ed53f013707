// Marks on a canvas. The shape says what a number is: ring, disc, square, diamond.

const TURN = 2 * Math.PI;
const MANY = 20_000; // points from which on a square of two pixels stands for each

/** The colours of the style sheet, as they are now: light or dark. */
export function colours(element) {
  const style = getComputedStyle(element);
  return (name) => style.getPropertyValue(`--${name}`).trim();
}

/** A canvas as large as its box, sharp on every screen; drawn in the box's pixels. */
export function sharpened(canvas, width, height) {
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

/** The cloud: those of the points whose mask has a value. */
export function cloud(context, xs, ys, mask, wanted, { colour, alpha, isRing }) {
  Object.assign(context, { fillStyle: colour, strokeStyle: colour, globalAlpha: alpha, lineWidth: 1 });
  const isMany = xs.length > MANY;
  context.beginPath();
  for (let i = 0; i < xs.length; i++) {
    if (mask[i] !== wanted || !(xs[i] >= 0)) continue;
    if (isMany) context.rect(xs[i] - 1, ys[i] - 1, 2, 2);
    else {
      context.moveTo(xs[i] + 3, ys[i]);
      context.arc(xs[i], ys[i], 3, 0, TURN);
    }
  }
  if (isRing && !isMany) context.stroke();
  else context.fill();
  context.globalAlpha = 1;
}

/** One mark with a thin edge of the paper's colour. */
export function mark(context, shape, x, y, size, colour, paper) {
  context.beginPath();
  if (shape === "square") context.rect(x - size * 0.9, y - size * 0.9, size * 1.8, size * 1.8);
  else if (shape === "diamond") {
    const wide = size * 1.35;
    context.moveTo(x, y - wide);
    context.lineTo(x + wide, y);
    context.lineTo(x, y + wide);
    context.lineTo(x - wide, y);
    context.closePath();
  } else context.arc(x, y, size, 0, TURN);
  Object.assign(context, { fillStyle: colour, strokeStyle: paper, lineWidth: 1.5 });
  context.fill();
  context.stroke();
}

/** A line between two places. */
export function stroke(context, colour, width, ...places) {
  Object.assign(context, { strokeStyle: colour, lineWidth: width });
  context.beginPath();
  places.forEach(([x, y], i) => (i ? context.lineTo(x, y) : context.moveTo(x, y)));
  context.stroke();
}
