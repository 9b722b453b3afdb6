// The live table: one tab stop, arrows walk, Enter opens a cell or makes a row the baseline.

// What stands in a cell: text, whether it is best or close to it, and a sentence on it.
function cellFacts(board, state, row, column, baseline) {
  const metric = board.metrics[state.metric], cell = row * board.columns.length + column;
  const value = metric.mean[cell], said = board.statistics[state.metric];
  const where = cellName(board, cell);
  if (baseline !== null && baseline !== row) return { ...deltaFacts(board, state, row, column, baseline), where, cell };
  const hasInterval = metric.low && metric.low[cell] !== null;
  const interval = hasInterval ? `95 % interval ${shown(metric.low[cell])} to ${shown(metric.high[cell])}` : "";
  const count = board.runs[cell].length;
  const spread = metric.sd[cell] === null ? "" : `standard deviation ${shown(metric.sd[cell])} over ${count} runs`;
  const rank = said ? said.ranks[cell] : null;
  const ranked = rank ? `rank ${rankText(rank)} of ${said.ranked[column]}` : "";
  return {
    cell, where, value, text: shown(value), rank: rankText(rank), isBaseline: baseline === row,
    close: Boolean(said) && said.close[cell] === "1",
    about: [`${state.metric} ${shown(value)}`, interval, spread, ranked].filter(Boolean).join("; "),
  };
}

function deltaFacts(board, state, row, column, baseline) {
  const said = board.statistics[state.metric], { mean } = board.metrics[state.metric], width = board.columns.length;
  const found = said ? difference(said.pairs[column], board.rows.length, row, baseline) : null;
  if (found) {
    const { value, half } = found, adjusted = shownP(found.adjusted);
    return {
      value, text: signed(value), half: `±${half === Infinity ? "> 655" : shown(half)}`, p: `p ${adjusted}`,
      certain: isSignificant(found),
      about: `Δ ${signed(value)}, ${intervalAround(value, half)}; `
        + `p ${shownP(found.p)}, adjusted ${adjusted} (${found.correction})`,
    };
  }
  const value = mean[row * width + column], other = mean[baseline * width + column];
  if (value === null || other === null) return { value: null, text: "–", about: "nothing to compare" };
  if (!haveSameRuns(board, row, baseline, column)) {
    return { value: null, text: "–", about: "the two are over other seeds or orders, and this has no test" };
  }
  const untested = said ? "the two have not been compared in this page" : "this metric has no test";
  const why = board.columns[column].protocol ? untested : "an average has no test";
  return { value: value - other, text: signed(value - other), about: `Δ ${signed(value - other)}; no interval: ${why}` };
}

function replicatesOf(board, cell) {
  return board.runs[cell].map((run) => `${run.seed} ${run.order}`);
}

// Of an average: in every column.
function haveSameRuns(board, one, other, column) {
  const width = board.columns.length, columns = board.columns[column].protocol ? [column] : board.columns.keys();
  return [...columns].every((place) => {
    const [own, its] = [one, other].map((row) => replicatesOf(board, row * width + place).sort().join());
    return own === its;
  });
}

// AP of each class in two cells, over the seeds and orders that both have; null for each if they share none.
function sharedAp(board, one, other) {
  if (!board.uneven[one] || !board.uneven[other]) return [one, other].map((cell) => unpackPoints(board.ap[cell]));
  const both = replicatesOf(board, one).filter((name) => replicatesOf(board, other).includes(name));
  return [one, other].map((cell) => {
    const names = replicatesOf(board, cell);
    const runs = board.uneven[cell].map(unpackPoints).filter((_, k) => both.includes(names[k]));
    const meanOf = (values) => (!values.length || values.includes(null) ? null : values.reduce((a, b) => a + b) / values.length);
    return unpackPoints(board.ap[cell]).map((_, k) => meanOf(runs.map((ap) => ap[k])));
  });
}

function intervalAround(value, half) {
  if (half === null) return "no interval";
  if (half === Infinity) return "95 % interval more than 655 to either side";
  return `95 % interval ${signed(value - half)} to ${signed(value + half)}`;
}

function bestOf(facts, less) {
  if (less) return null; // an error of scores that need not be logits
  const values = facts.map((f) => f.value).filter((v) => v !== null).map((v) => Number(v.toFixed(2)));
  return values.length > 1 ? Math.max(...values) : null;
}

// The table on screen: rows in order, each with the facts of its cells.
function tableOf(board, state) {
  const kept = keptRows(board.rows, state);
  const baseline = board.rows.findIndex((row) => row.name === state.baseline), against = baseline < 0 ? null : baseline;
  const factsOf = (row) => board.columns.map((_, column) => cellFacts(board, state, row.number, column, against));
  const every = board.rows.map((row, number) => ({ ...row, number }));
  const facts = new Map(every.map((row) => [row.number, factsOf(row)]));
  const less = Boolean(board.metrics[state.metric].less); // an error: the smallest stands first
  const sort = parseSort(state.sort || (less ? "" : "-") + board.columns[0].name);
  const column = board.columns.findIndex((c) => c.name === sort.by);
  const valueOf = (row) => {
    if (column < 0) return row.name;
    const fact = facts.get(row.number)[column];
    return fact.isBaseline ? 0 : fact.value; // among differences the baseline's is nothing
  };
  const rows = sortedRows(kept, valueOf, sort.down);
  if (!board.untrained && baseline < 0) { // over all rows, as the tests behind the underlining are: a filter hides, and judges nothing
    board.columns.forEach((_, c) => {
      const factOf = (row) => facts.get(row.number)[c], ofAll = bestOf(every.map(factOf), less);
      for (const setting of new Set(every.map((row) => row.setting))) {
        const those = every.filter((row) => row.setting === setting).map(factOf), best = [ofAll, bestOf(those, less)];
        for (const fact of those) fact.best = fact.value !== null && best.includes(Number(fact.value.toFixed(2)));
      }
    });
  }
  return { rows, facts, baseline, sort, less };
}

function exportedTable(board, state) {
  const { rows, facts, baseline } = tableOf(board, state);
  const headsOf = ({ name }) => (baseline < 0 ? [name] : [`${name} Δ`, `${name} ± 95 %`, `${name} p`]);
  const heads = ["method", ...board.columns.flatMap(headsOf)];
  const cells = (fact) => {
    const first = { text: fact.isBaseline ? "–" : fact.text, bold: fact.best, underlined: fact.close };
    const test = [(fact.half || "").replace("±", ""), (fact.p || "").replace("p ", "")].map((text) => ({ text }));
    return baseline < 0 ? [first] : [first, ...test];
  };
  return { heads, rows: rows.map((row) => [{ text: row.name }, ...facts.get(row.number).flatMap(cells)]) };
}

function liveTable(board, state, change) {
  const { rows, facts, baseline, sort, less } = tableOf(board, state);
  const header = (name, numeric) => {
    const sorted = sort.by === name ? (sort.down ? "descending" : "ascending") : "none";
    const onclick = () => change({ sort: nextSort((sort.down ? "-" : "") + sort.by, name, numeric && !less) });
    return el("th", { scope: "col", "aria-sort": sorted }, el("button", { type: "button", onclick }, name));
  };
  const body = el("tbody");
  for (const row of rows) {
    const title = "Enter or click: compare all rows with this one";
    const line = el("tr", { class: row.number === baseline ? "baseline" : null },
      el("th", { scope: "row", tabindex: -1, "data-row": row.number, title }, el("span", { class: "name" }, row.name),
        el("small", {}, `${row.setting} · ${row.status}${row.warned ? " · with a warning" : ""}`)));
    for (const fact of facts.get(row.number)) line.append(tableCell(fact));
    body.append(line);
  }
  const first = body.querySelector("td, th");
  if (first) first.tabIndex = 0;
  const table = el("table", { class: "live", role: "grid", "aria-label": `${board.title}, ${state.metric}` },
    el("thead", {}, el("tr", {}, header("method", false), board.columns.map((column) => header(column.name, true)))), body);
  hearTable(table, board, facts, change, baseline);
  return el("div", { class: "scroll" }, table);
}

function tableCell(fact) {
  const kind = fact.best ? "best" : fact.close ? "close" : fact.certain ? (fact.value > 0 ? "gain" : "loss") : null;
  const value = el("span", { class: "value" }, fact.text);
  const cell = el("td", { tabindex: -1, "data-cell": fact.cell, class: kind }, value);
  const small = fact.half ? `${fact.half} ${fact.p}` : fact.isBaseline ? "baseline" : fact.rank;
  if (small) cell.append(el("small", {}, small));
  return cell;
}

// Two listeners for the table and not two for each of its cells: 200 × 20 of them stay fluent.
function hearTable(table, board, facts, change, baseline) {
  const act = (target) => {
    if (target.dataset.row !== undefined) {
      const name = board.rows[Number(target.dataset.row)].name;
      change({ baseline: Number(target.dataset.row) === baseline ? "" : name });
    } else if (target.dataset.cell !== undefined) change({ cell: cellName(board, Number(target.dataset.cell)) });
  };
  table.addEventListener("click", (event) => {
    const target = event.target.closest("tbody td, tbody th");
    if (target) act(target);
  });
  table.addEventListener("keydown", (event) => {
    const target = event.target.closest("tbody td, tbody th");
    if (!target) return;
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); act(target); return; }
    const next = neighbour(target, event.key);
    if (!next) return;
    event.preventDefault();
    target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
  const about = (target) => {
    const cell = target.closest("td[data-cell]");
    if (!cell) return hideTip();
    const number = Number(cell.dataset.cell), row = Math.floor(number / board.columns.length);
    const fact = facts.get(row)[number % board.columns.length];
    showTip(cell, fact.where, fact.about);
  };
  table.addEventListener("mouseover", (event) => about(event.target));
  table.addEventListener("focusin", (event) => about(event.target));
  table.addEventListener("mouseleave", hideTip);
  table.addEventListener("focusout", hideTip);
}

function neighbour(cell, key) {
  const row = cell.parentElement, place = [...row.children].indexOf(cell);
  if (key === "ArrowRight") return cell.nextElementSibling;
  if (key === "ArrowLeft") return cell.previousElementSibling;
  if (key === "Home") return row.firstElementChild;
  if (key === "End") return row.lastElementChild;
  const other = { ArrowDown: row.nextElementSibling, ArrowUp: row.previousElementSibling }[key];
  return other ? other.children[place] : null;
}

// ------------------------------------------------------------------------------------------ the line on a cell

function showTip(cell, where, about) {
  const tip = document.getElementById("tip");
  tip.replaceChildren(el("strong", {}, where), el("br"), about, el("br"), el("em", {}, "Enter or click: where it comes from"));
  tip.hidden = false;
  cell.setAttribute("aria-describedby", "tip");
  const box = cell.getBoundingClientRect(), size = tip.getBoundingClientRect();
  const below = box.bottom + 6 + size.height <= innerHeight;
  tip.style.left = `${Math.max(6, Math.min(box.left, innerWidth - size.width - 6))}px`;
  tip.style.top = `${below ? box.bottom + 6 : Math.max(6, box.top - size.height - 6)}px`;
}

function hideTip() {
  const tip = document.getElementById("tip");
  if (tip) tip.hidden = true;
}
