// The views besides the table: each returns what is to be shown, and the same as a table for export and readers of text.

const MOST_LINES = 16, MOST_POINTS = 60;
const COSTS = {
  images_per_s: { text: "images per second", more: true },
  forwards_per_image: { text: "encoder forwards per image", more: false },
  state_bytes: { text: "bytes of state at the end", more: false },
  step_flops: { text: "operations of a step (matrix products)", more: false },
};
const CURVES = {
  own: "mAP so far",
  recent: "mAP of the last images",
  gain: "mAP so far, less frozen CLIP's",
};

function measuredColumns(board) {
  return board.columns.map((column, number) => ({ ...column, number })).filter((column) => column.protocol);
}

function chosenColumn(board, state) {
  const columns = measuredColumns(board);
  return columns.find((column) => column.name === state.column) || columns[0];
}

function columnChoice(board, state, change) {
  const names = measuredColumns(board).map((column) => column.name);
  return choice("Dataset", names, chosenColumn(board, state).name, (column) => change({ column }));
}

function empty(text, controls = []) {
  return { controls, content: [el("p", { class: "empty" }, text)], table: { heads: [], rows: [] } };
}

function note(...text) {
  return el("p", { class: "notes" }, ...text);
}

function numbersBelow(caption, table) {
  return el("details", { class: "numbers" }, el("summary", {}, "The numbers as a table"), plainTable(caption, table));
}

// ------------------------------------------------------------------------------------------ classes

function differenceOfAp(own, its) {
  return own.map((ap, k) => (ap === null || its[k] === null ? null : ap - its[k]));
}

function classesView(board, state, change, shared) {
  const column = chosenColumn(board, state);
  const place = (row) => row.number * board.columns.length + column.number;
  const measured = keptRows(board.rows, {}).filter((row) => board.ap[place(row)]);
  if (!measured.length) return empty("No run has average precision by class.");
  const baseline = measured.find((row) => row.name === state.baseline)
    || measured.find((row) => row.method === "clip" && row.tag === "default") || measured[0];
  const names = shared[column.classes];
  const base = unpackPoints(board.ap[place(baseline)]), digits = isRough(board.ap[place(baseline)]) ? 1 : 2;
  const kept = new Set(keptRows(board.rows, state).map((row) => row.number));
  const lines = measured.filter((row) => row !== baseline && kept.has(row.number)).map((row) => ({
    name: row.name,
    delta: differenceOfAp(...sharedAp(board, place(row), place(baseline))),
    signs: classSigns(board.signs[column.number], names.length, row.number, baseline.number),
  }));
  const order = sortedClasses(names, base, baseline.name, lines, state.of);
  const caption = `AP of each class, and what rows gain or lose against ${baseline.name}, on ${column.name}, in points`;
  const most = Math.max(1, largeOf(lines.flatMap((line) => line.delta)));
  const marks = lines.some((line) => line.signs)
    ? `Framed: significantly different from ${baseline.name} (Holm over the classes). `
    : `Which differences to ${baseline.name} are significant is not known in this page. `;
  const against = choice("Against", measured.map((row) => row.name), baseline.name, (name) => change({ baseline: name }));
  return {
    caption,
    controls: [columnChoice(board, state, change), against],
    content: [
      heatMap(caption, baseline.name, base, lines, order, most, state.of, change),
      note(marks, `Blue gains, orange loses; the strongest colour is ${shown(most, 1)} points or more.`),
    ],
    table: {
      heads: ["class", `${baseline.name} AP`, ...lines.map((line) => `${line.name} Δ`)],
      rows: order.map(({ name, number }) => [
        { text: name },
        { text: shown(base[number], digits) },
        ...lines.map((line) => ({ text: line.delta[number] === null ? "–" : signed(line.delta[number], digits) })),
      ]),
    },
  };
}

// By the dataset's order until a column is chosen.
function sortedClasses(names, base, baseline, lines, of) {
  const classes = names.map((name, number) => ({ name, number }));
  if (!of) return classes;
  const sort = parseSort(of), line = lines.find((other) => other.name === sort.by);
  if (line) return sortedRows(classes, (entry) => line.delta[entry.number], sort.down);
  return sortedRows(classes, (entry) => (sort.by === baseline ? base[entry.number] : entry.name), sort.down);
}

function heatMap(caption, baseline, base, lines, order, most, of, change) {
  const sort = parseSort(of || "");
  const head = (name) => {
    const sorted = sort.by === name ? (sort.down ? "descending" : "ascending") : "none";
    const onclick = () => change({ of: nextSort(of || "", name, name !== "class") });
    return el("th", { scope: "col", "aria-sort": sorted }, el("button", { type: "button", onclick }, name));
  };
  const heads = el("tr", {}, head("class"), head(baseline), lines.map((line) => head(line.name)));
  const body = order.map(({ name, number }) =>
    el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, shown(base[number], 1)),
      lines.map((line) => heatCell(line.delta[number], line.signs && line.signs[number], most))));
  const table = el("table", { class: "heat", "aria-label": caption }, el("thead", {}, heads), el("tbody", {}, body));
  return el("div", { class: "scroll" }, table);
}

function heatCell(delta, sign, most) {
  if (delta === null) return el("td", {}, "–");
  const certain = sign === "+" || sign === "-" ? " certain" : "";
  const cell = el("td", { class: (delta >= 0 ? "up" : "down") + certain }, signed(delta, 1));
  cell.style.setProperty("--heat", `${Math.round(Math.abs(strength(delta, most)) * 70)}%`);
  return cell;
}

// ------------------------------------------------------------------------------------------ stream

function streamView(board, state, change) {
  const column = chosenColumn(board, state), kind = state.of in CURVES ? state.of : "own";
  const kinds = Object.entries(CURVES).map(([value, text]) => ({ value, text }));
  const controls = [columnChoice(board, state, change), choice("Shown", kinds, kind, (of) => change({ of }))];
  const all = keptRows(board.rows, state)
    .map((row) => ({ name: row.name, curve: board.curves[row.number * board.columns.length + column.number] }))
    .filter(({ curve }) => curve && (kind !== "gain" || curve.clip))
    .map(({ name, curve }) => ({ name, x: curve.ends, y: curveValues(curve, kind), window: curve.window, digits: isRough(curve.own) ? 1 : 2 }))
    .filter((line) => line.y.some((value) => value !== null));
  if (!all.length) {
    return empty(kind === "gain" ? "No run of clip on the same images to hold it against."
      : "No run has its scores at hand, so nothing can be said along the stream.", controls);
  }
  const last = (line) => line.y.at(-1) ?? -Infinity;
  const series = [...all].sort((a, b) => last(b) - last(a)).slice(0, MOST_LINES);
  const said = { own: CURVES.own, recent: `mAP of the last ${series[0].window} images`, gain: `${CURVES.gain} on the same images` };
  const caption = `${said[kind]}, along the stream of ${column.name}`;
  const table = {
    heads: ["images", ...series.map((line) => line.name)],
    rows: series[0].x.map((x, k) => [{ text: String(x) }, ...series.map((line) => ({ text: shown(line.y[k], line.digits) }))]),
  };
  const isGain = kind === "gain";
  return {
    caption, controls, table,
    content: [
      linePlot(caption, series, "images seen", isGain ? "Δ mAP (points)" : "mAP (%)", isGain),
      all.length > MOST_LINES ? note(`The ${MOST_LINES} highest of ${all.length} rows; the filter chooses others.`) : "",
      note("Each point ranks only the images that it is of, so its level moves with them: compare rows at a point, not points of a row. Mean over replicates."),
      numbersBelow(caption, table),
    ],
  };
}

function curveValues(curve, kind) {
  const own = unpackPoints(curve[kind === "recent" ? "recent" : "own"]);
  if (kind !== "gain") return own;
  const clip = unpackPoints(curve.clip);
  return own.map((value, k) => (value === null || clip[k] === null ? null : value - clip[k]));
}

// ------------------------------------------------------------------------------------------ cost

function costView(board, state, change) {
  const column = chosenColumn(board, state), kind = state.of in COSTS ? state.of : "images_per_s";
  const kinds = Object.entries(COSTS).map(([value, { text }]) => ({ value, text }));
  const controls = [columnChoice(board, state, change), choice("Against", kinds, kind, (of) => change({ of }))];
  const metric = board.metrics[state.metric], { text, more } = COSTS[kind];
  const all = keptRows(board.rows, {}).map((row) => {
    const cell = row.number * board.columns.length + column.number;
    const [low, high] = metric.low ? [metric.low[cell], metric.high[cell]] : [null, null];
    return { name: row.name, x: board.cost[kind][cell], y: metric.mean[cell], low, high };
  }).filter((point) => point.x !== null && point.y !== null);
  const kept = new Set(keptRows(board.rows, state).map((row) => row.name)), points = all.filter((point) => kept.has(point.name));
  if (!points.length) return empty("No run has recorded this cost.", controls);
  // Over all rows: a filter hides those that are better, and they are there all the same. None in an error.
  const front = metric.less ? [] : paretoFront(all, more).filter((point) => kept.has(point.name));
  const drawn = [...new Set([...front, ...points])].slice(0, MOST_POINTS);
  const caption = `${state.metric} against ${text}, on ${column.name}`;
  const table = {
    heads: ["method", text, state.metric, "on the front"],
    rows: [...points].sort((a, b) => (metric.less ? a.y - b.y : b.y - a.y)).map((point) => [
      { text: point.name }, { text: scaled(point.x) }, { text: shown(point.y) }, { text: front.includes(point) ? "yes" : "" },
    ]),
  };
  const speed = "Speed is that of the adapting alone, features at hand, and depends on the hardware: see a cell's provenance.";
  return {
    caption, controls, table,
    content: [
      pointPlot(caption, drawn, front, text, `${state.metric} (%)`, { log: points.every((point) => point.x > 0) }),
      note(metric.less ? "No row is best in an error. " : "Joined: no other row is better in both. Bars are 95 % intervals. ", kind === "images_per_s" ? speed : ""),
      numbersBelow(caption, table),
    ],
  };
}

// ------------------------------------------------------------------------------------------ published

function publishedView(board, state) {
  const width = board.columns.length, { mean, low, high } = board.metrics.mAP;
  const kept = new Set(keptRows(board.rows, state).map((row) => row.number));
  const found = board.published
    .filter((one) => mean[one.cell] !== null && kept.has(Math.floor(one.cell / width)))
    .map((one) => ({
      ...one,
      method: board.rows[Math.floor(one.cell / width)].name,
      dataset: board.columns[one.cell % width].name,
      measured: mean[one.cell], low: low[one.cell], high: high[one.cell],
    }));
  if (!found.length) {
    return empty("No paper prints a number for what was run here: it takes a complete dataset, a backbone and a prompt of a published table, and a method's defaults.");
  }
  const caption = "mAP as measured here and as printed";
  const verdict = (one) => {
    if (one.low === null) return "no interval";
    return one.value >= one.low && one.value <= one.high ? "within the interval" : "outside";
  };
  const table = {
    heads: ["method", "dataset", "measured", "interval", "published", "difference", "published value is", "source"],
    rows: found.map((one) => [
      one.method, one.dataset, shown(one.measured), one.low === null ? "–" : `${shown(one.low)} to ${shown(one.high)}`,
      shown(one.value), signed(one.measured - one.value), verdict(one), one.source + (one.note ? ` (${one.note})` : ""),
    ].map((text) => ({ text }))),
  };
  const datasets = distinct(found.map((one) => one.dataset)), hue = (name) => `hue${datasets.indexOf(name) % HUES}`;
  const points = found.map((one) => ({
    name: `${one.method}, ${one.dataset}`, x: one.value, y: one.measured, low: one.low, high: one.high, class: hue(one.dataset),
  }));
  return {
    caption, table, controls: [],
    content: [
      pointPlot(caption, points, [], "published mAP (%)", "measured mAP (%)", { diagonal: true }),
      el("ul", { class: "legend" }, datasets.map((name) => el("li", { class: hue(name) }, name))),
      plainTable(caption, table),
      note("An interval says how other images of the same kind would move the number. A paper's number that lies outside may be of another protocol: prompts, crops, class names or labels."),
    ],
  };
}
