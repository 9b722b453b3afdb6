// The views besides the table: each returns what is to be shown, and the same as a table for export and for readers of text.

const MOST_LINES = 16, MOST_POINTS = 60;
const COSTS = {
  images_per_s: { text: "images per second", more: true },
  forwards_per_image: { text: "encoder forwards per image", more: false },
  state_bytes: { text: "bytes of state at the end", more: false },
  step_flops: { text: "operations of a step (matrix products)", more: false },
};
const CURVES = { own: "mAP so far", recent: "mAP of the last images", gain: "mAP so far, less frozen CLIP's" };

function measuredColumns(board) {
  return board.columns.map((column, number) => ({ ...column, number })).filter((column) => column.protocol);
}

function chosenColumn(board, state) {
  const columns = measuredColumns(board);
  return columns.find((column) => column.name === state.column) || columns[0];
}

function columnChoice(board, state, change) {
  return choice("Dataset", measuredColumns(board).map((c) => c.name), chosenColumn(board, state).name, (column) => change({ column }));
}

function empty(text) {
  return { controls: [], content: [el("p", { class: "empty" }, text)], table: { heads: [], rows: [] } };
}

function numbersBelow(caption, table) {
  return el("details", { class: "numbers" }, el("summary", {}, "The numbers as a table"), plainTable(caption, table));
}

// ------------------------------------------------------------------------------------------ classes

function classesView(board, state, change, shared) {
  const column = chosenColumn(board, state), width = board.columns.length;
  const rows = keptRows(board.rows, state).filter((row) => board.ap[row.number * width + column.number]);
  const withAp = board.rows.map((row, number) => ({ ...row, number })).filter((row) => board.ap[row.number * width + column.number]);
  if (!withAp.length) return empty("No run has average precision by class.");
  const baseline = withAp.find((row) => row.name === state.baseline) || withAp.find((row) => row.method === "clip" && row.tag === "default") || withAp[0];
  const names = shared[column.classes], of = (row) => unpack(board.ap[row.number * width + column.number]).map(fromPoints), base = of(baseline);
  const lines = rows.filter((row) => row.number !== baseline.number)
    .map((row) => ({ row, ap: of(row), signs: baseline.method === "clip" ? board.signs[row.number * width + column.number] : "" }))
    .map((line) => ({ ...line, delta: names.map((_, k) => (line.ap[k] === null || base[k] === null ? null : line.ap[k] - base[k])) }));
  const sort = parseSort(state.of || "class"), by = lines.find((line) => line.row.name === sort.by);
  const valueOf = (entry) => (by ? by.delta[entry.number] : sort.by === baseline.name ? base[entry.number] : sort.by === "class" && state.of ? entry.name : entry.number);
  const order = sortedRows(names.map((name, number) => ({ name, number })), valueOf, sort.down);
  const most = Math.max(1, ...lines.flatMap((line) => line.delta.map((d) => Math.abs(d ?? 0))));
  const head = (name, text = name) => el("th", { scope: "col", "aria-sort": sort.by === name && state.of ? (sort.down ? "descending" : "ascending") : "none" },
    el("button", { type: "button", onclick: () => change({ of: nextSort(state.of || "", name, name !== "class") }) }, text));
  const body = order.map(({ name, number }) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, shown(base[number], 1)),
    lines.map((line) => heatCell(line, number, most))));
  const table = { heads: ["class", `${baseline.name} AP`, ...lines.map((line) => `${line.row.name} Δ`)],
    rows: order.map(({ name, number }) => [{ text: name }, { text: shown(base[number]) }, ...lines.map((line) => ({ text: line.delta[number] === null ? "–" : signed(line.delta[number]) }))]) };
  const caption = `AP of each class, and what rows gain or lose against ${baseline.name}, on ${column.name}, in points`;
  return {
    controls: [columnChoice(board, state, change), choice("Against", withAp.map((row) => row.name), baseline.name, (name) => change({ baseline: name }))],
    content: [el("div", { class: "scroll" }, el("table", { class: "heat", "aria-label": caption },
      el("thead", {}, el("tr", {}, head("class"), head(baseline.name), lines.map((line) => head(line.row.name)))), el("tbody", {}, body))),
      el("p", { class: "notes" }, baseline.method === "clip" ? "Framed: significantly different from clip (Holm over the classes). " : "Significance by class is kept for clip as baseline only. ", "Blue gains, orange loses; the strongest colour is ", `${shown(most, 1)} points.`)],
    table, caption,
  };
}

function heatCell(line, number, most) {
  const delta = line.delta[number];
  if (delta === null) return el("td", {}, "–");
  const cell = el("td", { class: `${delta >= 0 ? "up" : "down"}${"+-".includes(line.signs[number] || ".") ? " certain" : ""}` }, signed(delta, 1));
  cell.style.setProperty("--heat", `${Math.round(Math.abs(strength(delta, most)) * 70)}%`);
  return cell;
}

// ------------------------------------------------------------------------------------------ stream

function streamView(board, state, change) {
  const column = chosenColumn(board, state), width = board.columns.length, kind = state.of in CURVES ? state.of : "own";
  const controls = [columnChoice(board, state, change), choice("Shown", Object.entries(CURVES).map(([value, text]) => ({ value, text })), kind, (of) => change({ of }))];
  const all = keptRows(board.rows, state).map((row) => ({ name: row.name, curve: board.curves[row.number * width + column.number] }))
    .filter(({ curve }) => curve && (kind !== "gain" || curve.clip)).map(({ name, curve }) => ({ name, x: curve.ends, y: curveValues(curve, kind), window: curve.window }))
    .filter((line) => line.y.some((v) => v !== null));
  if (!all.length) return { ...empty(kind === "gain" ? "No run of clip on the same images to hold it against." : "No run has its scores at hand, so nothing can be said along the stream."), controls };
  const series = [...all].sort((a, b) => (b.y.at(-1) ?? -Infinity) - (a.y.at(-1) ?? -Infinity)).slice(0, MOST_LINES);
  const said = kind === "recent" ? `mAP of the last ${series[0].window} images` : CURVES[kind] + (kind === "gain" ? " on the same images" : "");
  const caption = `${said}, along the stream of ${column.name}`;
  const table = { heads: ["images", ...series.map((s) => s.name)], rows: series[0].x.map((x, k) => [{ text: String(x) }, ...series.map((s) => ({ text: shown(s.y[k]) }))]) };
  const few = all.length > MOST_LINES ? [el("p", { class: "notes" }, `The ${MOST_LINES} highest of ${all.length} rows; the filter chooses others.`)] : [];
  const level = el("p", { class: "notes" }, "Each point ranks only the images that it is of, so its level moves with them: compare rows at a point, not points of a row. Mean over replicates.");
  return { controls, content: [linePlot(caption, series, "images seen", kind === "gain" ? "Δ mAP (points)" : "mAP (%)", kind === "gain"), ...few, level, numbersBelow(caption, table)], table, caption };
}

function curveValues(curve, kind) {
  const own = unpack(curve[kind === "recent" ? "recent" : "own"]).map(fromPoints);
  if (kind !== "gain") return own;
  const clip = unpack(curve.clip).map(fromPoints);
  return own.map((v, k) => (v === null || clip[k] === null ? null : v - clip[k]));
}

// ------------------------------------------------------------------------------------------ cost

function costView(board, state, change) {
  const column = chosenColumn(board, state), width = board.columns.length, kind = state.of in COSTS ? state.of : "images_per_s";
  const controls = [columnChoice(board, state, change), choice("Against", Object.entries(COSTS).map(([value, { text }]) => ({ value, text })), kind, (of) => change({ of }))];
  const metric = board.metrics[state.metric];
  const points = keptRows(board.rows, state).map((row) => row.number * width + column.number)
    .map((cell) => ({ name: board.rows[Math.floor(cell / width)].name, x: board.cost[kind][cell], y: metric.mean[cell], low: metric.low && metric.low[cell], high: metric.high && metric.high[cell] }))
    .filter((p) => p.x !== null && p.y !== null);
  if (!points.length) return { ...empty("No run has recorded this cost."), controls };
  const front = paretoFront(points, COSTS[kind].more), log = points.every((p) => p.x > 0);
  const caption = `${state.metric} against ${COSTS[kind].text}, on ${column.name}`;
  const table = { heads: ["method", COSTS[kind].text, state.metric, "on the front"], rows: [...points].sort((a, b) => b.y - a.y).map((p) => [{ text: p.name }, { text: scaled(p.x) }, { text: shown(p.y) }, { text: front.includes(p) ? "yes" : "" }]) };
  const drawn = points.length > MOST_POINTS ? [...new Set([...front, ...points])].slice(0, MOST_POINTS) : points;
  return { controls, content: [pointPlot(caption, drawn, front, COSTS[kind].text, `${state.metric} (%)`, { log }),
    el("p", { class: "notes" }, "Joined: no other row is better in both. Bars are 95 % intervals. ", kind === "images_per_s" ? "Speed is that of the adapting alone, features at hand, and depends on the hardware: see a cell's provenance." : ""),
    numbersBelow(caption, table)], table, caption };
}

// ------------------------------------------------------------------------------------------ published

function publishedView(board, state) {
  const width = board.columns.length, metric = board.metrics.mAP, kept = new Set(keptRows(board.rows, state).map((row) => row.number));
  const found = board.published.map((one) => ({ ...one, row: board.rows[Math.floor(one.cell / width)], column: board.columns[one.cell % width], measured: metric.mean[one.cell], low: metric.low[one.cell], high: metric.high[one.cell] }))
    .filter((one) => one.measured !== null && kept.has(Math.floor(one.cell / width)));
  if (!found.length) return empty("No paper prints a number for what was run here: it takes a complete dataset, a backbone and a prompt of a published table, and a method's defaults.");
  const caption = "mAP as measured here and as printed";
  const verdict = (one) => (one.low === null ? "no interval" : one.value >= one.low && one.value <= one.high ? "within the interval" : "outside");
  const table = { heads: ["method", "dataset", "measured", "interval", "published", "difference", "published value is", "source"], rows: found.map((one) => [
    { text: one.row.name }, { text: one.column.name }, { text: shown(one.measured) }, { text: one.low === null ? "–" : `${shown(one.low)} to ${shown(one.high)}` }, { text: shown(one.value) },
    { text: signed(one.measured - one.value) }, { text: verdict(one) }, { text: one.source + (one.note ? ` (${one.note})` : "") }]) };
  const datasets = distinct(found.map((one) => one.column.name)), hue = (name) => `hue${datasets.indexOf(name) % HUES}`;
  const points = found.map((one) => ({ name: `${one.row.name}, ${one.column.name}`, x: one.value, y: one.measured, low: one.low, high: one.high, class: hue(one.column.name) }));
  const legend = el("ul", { class: "legend" }, datasets.map((name) => el("li", { class: hue(name) }, name)));
  return { controls: [], content: [pointPlot(caption, points, [], "published mAP (%)", "measured mAP (%)", { diagonal: true }), legend, plainTable(caption, table),
    el("p", { class: "notes" }, "An interval says how other images of the same kind would move the number. A paper's number that lies outside may be of another protocol: prompts, crops, class names or labels.")], table, caption };
}
