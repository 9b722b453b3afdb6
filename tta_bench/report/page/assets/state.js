// What is on screen, as a link carries it, and which rows that shows. Pure functions, tested in node.

const VIEWS = ["table", "classes", "stream", "cost", "published"];
const KEYS = ["view", "backbone", "prompt", "metric", "tag", "setting", "filter", "sort", "baseline", "cell", "column", "of"];

function parseState(hash) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const state = {};
  for (const key of KEYS) if (given.get(key)) state[key] = given.get(key);
  if (!VIEWS.includes(state.view)) state.view = "table";
  return state;
}

function formatState(state) {
  const kept = new URLSearchParams();
  for (const key of KEYS) if (state[key] && !(key === "view" && state.view === "table")) kept.set(key, state[key]);
  return "#" + kept.toString();
}

// "name" or "-name": what a table is sorted by, and whether downwards.
function parseSort(sort) {
  return sort.startsWith("-") ? { by: sort.slice(1), down: true } : { by: sort, down: false };
}

// The order by a column's name; who asks for a dataset or the average means the first column of it.
function knownSort(columns, sort) {
  const { by, down } = parseSort(sort);
  if (by === "method" || columns.some((column) => column.name === by)) return sort;
  const meant = columns.find((column) => (column.dataset || "average") === by);
  return meant ? (down ? "-" : "") + meant.name : "";
}

// First click on a column of numbers: best first; on names: A first; a second click turns round.
function nextSort(sort, by, numeric) {
  const now = parseSort(sort);
  const down = now.by === by ? !now.down : numeric;
  return (down ? "-" : "") + by;
}

function keptRows(rows, state) {
  const words = (state.filter || "").toLowerCase().split(/\s+/).filter(Boolean);
  return rows
    .map((row, number) => ({ ...row, number }))
    .filter((row) => !state.tag || row.tag === state.tag)
    .filter((row) => !state.setting || row.setting === state.setting)
    .filter((row) => words.every((word) => row.name.toLowerCase().includes(word)));
}

// Rows by a value; what has none comes last whatever the direction.
function sortedRows(rows, valueOf, down) {
  const sign = down ? -1 : 1;
  return [...rows].sort((a, b) => {
    const one = valueOf(a), other = valueOf(b);
    if (one === null || other === null) return (one === null) - (other === null) || a.number - b.number;
    const order = typeof one === "string" ? one.localeCompare(other) : one - other;
    return sign * order || a.number - b.number;
  });
}

// Links name a cell by its row and column: a place in the table would be another's as soon as there is a new row.
function cellName(board, cell) {
  return `${board.rows[Math.floor(cell / board.columns.length)].name} on ${board.columns[cell % board.columns.length].name}`;
}

function cellAt(board, name) {
  for (let cell = 0; cell < board.runs.length; cell++) if (cellName(board, cell) === name) return cell;
  return null;
}

function distinct(values) {
  return [...new Set(values)];
}
