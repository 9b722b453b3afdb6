// Inline SVG: lines and points with axes. Each plot has a label that says what it shows; its numbers stand in a table below.

const NARROW = "(max-width: 600px)";
let WIDTH = 720, HEIGHT = 380, RIGHT = 130;
const LEFT = 52, TOP = 16, BOTTOM = 46;

// On a phone a plot is drawn smaller, so that its text stays as large as the page's.
function fitPlots() {
  [WIDTH, HEIGHT, RIGHT] = matchMedia(NARROW).matches ? [380, 300, 92] : [720, 380, 130];
}
const DASHES = ["none", "6 3", "2 3"];
const HUES = 8; // colours of style.css, told apart by the colour-blind

function lineStyle(number) {
  return { class: `hue${number % HUES}`, "stroke-dasharray": DASHES[Math.floor(number / HUES) % DASHES.length] };
}

function extent(values, margin = 0.06) {
  const low = Math.min(...values), high = Math.max(...values), room = (high - low || Math.abs(high) || 1) * margin;
  return [low - room, high + room];
}

function scale([low, high], from, to, log = false) {
  const of = log ? Math.log10 : (v) => v;
  return (value) => from + ((of(value) - of(low)) / (of(high) - of(low) || 1)) * (to - from);
}

function logTicks(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
    for (const factor of [1, 2, 5]) found.push({ factor, value: factor * 10 ** power });
  }
  const within = found.filter(({ value }) => value >= low * 0.999 && value <= high * 1.001);
  return within.filter(({ factor }) => within.length <= 8 || factor === 1).map(({ value }) => value);
}

function frame(label, x, y, xTicks, yTicks, xLabel, yLabel) {
  const bottom = HEIGHT - BOTTOM, right = WIDTH - RIGHT, middle = (TOP + bottom) / 2;
  const xTick = (v) => svg("g", { class: "tick" },
    svg("line", { x1: x(v), x2: x(v), y1: bottom, y2: bottom + 5 }),
    svg("text", { x: x(v), y: bottom + 18, "text-anchor": "middle" }, scaled(v)));
  const yTick = (v) => svg("g", { class: "tick" },
    svg("line", { x1: LEFT, x2: right, y1: y(v), y2: y(v) }),
    svg("text", { x: LEFT - 8, y: y(v) + 4, "text-anchor": "end" }, scaled(v)));
  return svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label, class: "plot" },
    yTicks.map(yTick),
    xTicks.map(xTick),
    svg("text", { class: "axis", x: (LEFT + right) / 2, y: HEIGHT - 8, "text-anchor": "middle" }, xLabel),
    svg("text", { class: "axis", transform: `translate(14 ${middle}) rotate(-90)`, "text-anchor": "middle" }, yLabel));
}

// Labels at their heights, pushed apart until none covers another.
function spread(heights, room, low, high) {
  const order = heights.map((y, i) => ({ y, i })).sort((a, b) => a.y - b.y);
  for (let k = 0; k < order.length; k++) order[k].y = Math.max(order[k].y, k ? order[k - 1].y + room : low);
  for (let k = order.length - 1, limit = high; k >= 0; k--) { order[k].y = Math.min(order[k].y, limit); limit = order[k].y - room; }
  const found = [];
  for (const { y, i } of order) found[i] = y;
  return found;
}

function shortened(text, most = RIGHT / 7) {
  return text.length > most ? text.slice(0, most - 1) + "…" : text;
}

// series: [{ name, x: [..], y: [..] }], y may hold nulls.
function linePlot(label, series, xLabel, yLabel, zeroLine = false) {
  fitPlots();
  const all = series.flatMap((s) => s.y).filter((v) => v !== null);
  const [low, high] = extent(zeroLine ? [...all, 0] : all), xs = series.flatMap((s) => s.x);
  const x = scale([0, Math.max(...xs)], LEFT, WIDTH - RIGHT), y = scale([low, high], HEIGHT - BOTTOM, TOP);
  const plot = frame(label, x, y, ticks(0, Math.max(...xs)), ticks(low, high), xLabel, yLabel);
  if (zeroLine) plot.append(svg("line", { class: "zero", x1: LEFT, x2: WIDTH - RIGHT, y1: y(0), y2: y(0) }));
  const ends = series.map((s) => y(s.y.findLast((v) => v !== null) ?? low));
  const heights = spread(ends, 14, TOP + 6, HEIGHT - BOTTOM);
  series.forEach((s, i) => {
    const points = s.x.map((v, k) => (s.y[k] === null ? null : `${x(v).toFixed(1)},${y(s.y[k]).toFixed(1)}`)).filter(Boolean);
    plot.append(svg("polyline", { points: points.join(" "), ...lineStyle(i) }, svg("title", {}, s.name)));
    const edge = WIDTH - RIGHT, label = { class: `label hue${i % HUES}`, x: edge + 12, y: heights[i] + 4 };
    plot.append(svg("line", { class: "leader", x1: edge + 1, y1: ends[i], x2: edge + 9, y2: heights[i] }));
    plot.append(svg("text", label, shortened(s.name), svg("title", {}, s.name)));
  });
  return plot;
}

// points: [{ name, x, y, low, high, class }]; front: those that are joined. Points with a class go by a legend.
function pointPlot(label, points, front, xLabel, yLabel, { log = false, diagonal = false } = {}) {
  fitPlots();
  const xs = points.map((p) => p.x), ys = points.flatMap((p) => [p.y, p.low ?? p.y, p.high ?? p.y]);
  const both = extent([...xs, ...ys]), ownRange = log ? [Math.min(...xs) / 1.4, Math.max(...xs) * 1.4] : extent(xs);
  const [xRange, yRange] = diagonal ? [both, both] : [ownRange, extent(ys)];
  const x = scale(xRange, LEFT, WIDTH - RIGHT, log), y = scale(yRange, HEIGHT - BOTTOM, TOP);
  const plot = frame(label, x, y, log ? logTicks(...xRange) : ticks(...xRange), ticks(...yRange), xLabel, yLabel);
  if (diagonal) plot.append(svg("line", { class: "zero", x1: x(both[0]), y1: y(both[0]), x2: x(both[1]), y2: y(both[1]) }));
  const joined = front.map((p) => `${x(p.x)},${y(p.y)}`).join(" ");
  if (front.length > 1) plot.append(svg("polyline", { class: "front", points: joined }));
  const taken = points.map((p) => ({ left: x(p.x) - 5, right: x(p.x) + 5, top: y(p.y) - 5, bottom: y(p.y) + 5 }));
  for (const p of points) {
    const cx = x(p.x), cy = y(p.y);
    if (p.low !== null) plot.append(svg("line", { class: "whisker", x1: cx, x2: cx, y1: y(p.low), y2: y(p.high) }));
    const kind = p.class || (front.includes(p) ? "on-front" : "off-front");
    plot.append(svg("circle", { class: kind, cx, cy, r: 4.5 }, svg("title", {}, `${p.name}: ${shown(p.y)}, ${scaled(p.x)}`)));
    const place = p.class ? null : freePlace(shortened(p.name), cx, cy, taken);
    if (place) plot.append(svg("text", { class: "label", x: place.left, y: place.bottom - 3 }, shortened(p.name)));
  }
  return plot;
}

// Right of a point, else left, above or below; nowhere if all is taken: the table below has every name.
function freePlace(text, cx, cy, taken) {
  const width = 6.8 * text.length, left = -8 - width;
  const sides = [[8, -7], [left, -7], [4, -21], [left + 4, -21], [4, 7], [left + 4, 7], [8, -34], [left, 20]];
  for (const [dx, dy] of sides) {
    const box = { left: cx + dx, right: cx + dx + width, top: cy + dy, bottom: cy + dy + 14 };
    const covers = taken.some((t) => t.left < box.right && box.left < t.right && t.top < box.bottom && box.top < t.bottom);
    if (!covers && box.left > LEFT && box.right < WIDTH && box.top > 0 && box.bottom < HEIGHT - BOTTOM) {
      taken.push(box);
      return box;
    }
  }
  return null;
}
