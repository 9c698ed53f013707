// Marks on a canvas. The shape says what a number is: ring, disc, square, diamond.

const TURN = 2 * Math.PI;

/** The colours of the style sheet, as they are now: light or dark. */
function colours(element) {
  const style = getComputedStyle(element);
  return (name) => style.getPropertyValue(`--${name}`).trim();
}

/** A canvas as large as its box, sharp on every screen; drawn in the box's pixels. */
function sharpened(canvas, width, height) {
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

/** The cloud: those of the points whose mask has a value, as dots or rings that cover each other. */
function cloud(context, xs, ys, mask, wanted, { colour, alpha, isRing }) {
  const { width, height } = context.canvas;
  const ratio = context.getTransform().a;
  const { stamp, half } = stamped(3 * ratio, isRing ? ratio : 0);
  const image = new ImageData(width, height);
  const pixels = image.data;
  for (let i = 0; i < xs.length; i++) {
    if (mask[i] !== wanted || !(xs[i] >= 0)) continue;
    const [left, top] = [Math.round(xs[i] * ratio) - half, Math.round(ys[i] * ratio) - half];
    for (let y = 0, k = 0; y <= 2 * half; y++)
      for (let x = 0, at = 4 * ((top + y) * width + left) + 3; x <= 2 * half; x++, k++, at += 4)
        if (stamp[k] > pixels[at]) pixels[at] = stamp[k];
  }
  const layer = new OffscreenCanvas(width, height).getContext("2d");
  layer.putImageData(image, 0, 0);
  Object.assign(layer, { globalCompositeOperation: "source-in", fillStyle: colour });
  layer.fillRect(0, 0, width, height);
  context.save();
  context.resetTransform();
  context.globalAlpha = alpha;
  context.drawImage(layer.canvas, 0, 0);
  context.restore();
}

/** How much of each pixel a dot covers, or a ring that is so thick, from 0 to 255. */
function stamped(radius, thick) {
  const half = Math.ceil(radius + 1);
  const stamp = [];
  for (let y = -half; y <= half; y++)
    for (let x = -half; x <= half; x++) {
      const inside = radius - Math.hypot(x, y);
      stamp.push(255 * Math.min(Math.max((thick ? thick / 2 - Math.abs(inside) : inside) + 0.5, 0), 1));
    }
  return { stamp: Uint8ClampedArray.from(stamp), half };
}

/** One mark with a thin edge of the paper's colour. */
function mark(context, shape, x, y, size, colour, paper) {
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
function stroke(context, colour, width, ...places) {
  Object.assign(context, { strokeStyle: colour, lineWidth: width });
  context.beginPath();
  places.forEach(([x, y], i) => (i ? context.lineTo(x, y) : context.moveTo(x, y)));
  context.stroke();
}
