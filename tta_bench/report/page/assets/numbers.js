// Numbers as the page holds them (packing.py) and as it shows them. Pure functions, tested in node.

const MISSING = 0xffff, WIDE = 0xfffe, SHIFT = 20000, P_STEPS = 4096, LEVEL = 0.05;

const unpacked = new Map(); // every cell of a column asks for the same text

function unpack(text) {
  if (!unpacked.has(text)) {
    const bytes = atob(text);
    const codes = Array.from({ length: bytes.length / 2 }, (_, i) => bytes.charCodeAt(2 * i) + 256 * bytes.charCodeAt(2 * i + 1));
    unpacked.set(text, codes);
  }
  return unpacked.get(text);
}

// Percentages of 24 bits each, or of 16.
function unpackPoints(text) {
  const rough = isRough(text), [size, scale] = rough ? [2, 500] : [3, 10000], bytes = atob(rough ? text.slice(1) : text);
  const code = (i) => Array.from({ length: size }, (_, k) => bytes.charCodeAt(i + k) * 256 ** k).reduce((a, b) => a + b);
  const codes = Array.from({ length: bytes.length / size }, (_, k) => code(size * k));
  return codes.map((found) => (found === 256 ** size - 1 ? null : found / scale));
}

function isRough(text) {
  return text.startsWith("~");
}

function fromPoints(code) {
  return code === MISSING ? null : (code - SHIFT) / 100;
}

// Half of an interval: Infinity where it is wider than can be said.
function fromWidth(code) {
  if (code === MISSING) return null;
  return code === WIDE ? Infinity : code / 100;
}

function fromProbability(code) {
  return code === MISSING ? null : 10 ** (-code / P_STEPS);
}

// In which classes row `one` is significantly above (+) or below (-) row `other`; null where that was not looked at.
function classSigns(signs, classes, one, other) {
  const direct = signs[`${one},${other}`], text = direct ?? signs[`${other},${one}`];
  if (text === undefined) return null;
  const letters = direct === undefined ? ["", "-", "+"] : ["", "+", "-"];
  const digit = (k) => Math.floor((text.charCodeAt(Math.floor(k / 3)) - 97) / 3 ** (k % 3)) % 3;
  return Array.from({ length: classes }, (_, k) => (text ? letters[digit(k)] : ""));
}

// Row `one` less row `other` in one column: null where the two have not been compared.
function difference(pairs, rows, one, other) {
  if (!pairs || one === other) return null;
  const family = pairs.against[other] || pairs.against[one];
  if (family) {
    const direct = other in pairs.against;
    const found = pairAt(unpack(family), direct ? one : other, direct ? 1 : -1);
    if (found) return { ...found, correction: "Holm" };
  }
  if (!pairs.all) return null;
  const [low, high] = one < other ? [one, other] : [other, one];
  const place = low * rows - (low * (low + 1)) / 2 + (high - low - 1);
  const found = pairAt(unpack(pairs.all), place, one < other ? 1 : -1);
  return found && { ...found, correction: "Benjamini-Yekutieli, exploratory" };
}

function pairAt(codes, place, sign) {
  const [delta, half, p, adjusted] = codes.slice(4 * place, 4 * place + 4);
  if (delta === undefined || delta === MISSING) return null;
  const value = sign * fromPoints(delta);
  return { value, half: fromWidth(half), p: fromProbability(p), adjusted: fromProbability(adjusted) };
}

function isSignificant(found) {
  return found !== null && found.adjusted !== null && found.adjusted < LEVEL;
}

function shown(value, digits = 2) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  return Math.abs(value) >= 1e6 ? value.toExponential(2) : value.toFixed(digits);
}

function signed(value, digits = 2) {
  const text = shown(value, digits).replace("-", "−");
  if (/^−?0\.?0*$/.test(text)) return text.replace("−", ""); // what rounds to nothing has no sign
  return value > 0 ? "+" + text : text;
}

function shownP(p) {
  if (p === null) return "–";
  if (p < 0.001) return "< 0.001";
  return p.toFixed(p < 0.1 ? 3 : 2);
}

// 1234567 -> "1.23 M"
function scaled(value) {
  if (value === null) return "–";
  for (const prefix of ["", "k", "M", "G", "T"]) {
    if (Math.abs(value) < 1000) return `${Number(value.toPrecision(3))}${prefix && " " + prefix}`;
    value /= 1000;
  }
  return value.toExponential(2) + " P";
}

function rankText(rank) {
  if (!rank) return "";
  return rank[0] === rank[1] ? `${rank[0]}` : `${rank[0]}–${rank[1]}`;
}

// The points that no other beats in both: y is better when larger, x when `more` says so.
function paretoFront(points, more) {
  const side = more ? 1 : -1;
  const byX = [...points].sort((a, b) => side * (b.x - a.x) || b.y - a.y);
  let best = -Infinity;
  return byX.filter((point) => point.y > best && ((best = point.y), true));
}

// Round numbers that cover a range.
function ticks(low, high, count = 5) {
  const span = high - low || 1, raw = span / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= raw);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(Number((i * step).toPrecision(12)));
  return found;
}

// The size that one in twenty exceeds: a class of two photos would take the colour from all others.
function largeOf(values) {
  const sizes = values.filter((value) => value !== null).map(Math.abs).sort((a, b) => a - b);
  return sizes.length ? sizes[Math.ceil(0.95 * sizes.length) - 1] : 0;
}

// How strongly a difference is coloured: -1 … 1.
function strength(delta, most) {
  return most > 0 ? Math.max(-1, Math.min(1, delta / most)) : 0;
}
