// What the reader does -> state -> the address and the screen.

const data = JSON.parse(document.getElementById("data").textContent);
const TITLES = { table: "Table", classes: "Classes", stream: "Stream", cost: "Cost", published: "Published" };
const live = document.getElementById("live");
let state = {};

// The state with what a link left out, or named and is not there.
function complete(given) {
  const board = boardOf(given), found = { ...given, backbone: boardLabel(board), prompt: board.prompt };
  if (!(found.metric in board.metrics)) found.metric = "mAP";
  const named = board.rows.find((row) => row.name === found.baseline) || board.rows.find((row) => row.method === found.baseline);
  if (named) found.baseline = named.name; else delete found.baseline;
  if (found.sort) found.sort = knownSort(board.columns, found.sort);
  if (found.cell && cellAt(board, found.cell) === null) delete found.cell;
  return found;
}

function boardLabel(board) {
  return board.backbone + (board.untrained ? " (untrained)" : "");
}

// The one that a link names, else one of its backbone, else the first that is trained.
function boardOf(given) {
  const trained = [...data.boards].sort((a, b) => a.untrained - b.untrained);
  const ofBackbone = trained.filter((board) => !given.backbone || boardLabel(board) === given.backbone);
  return ofBackbone.find((board) => !given.prompt || board.prompt === given.prompt) || ofBackbone[0] || trained[0];
}

function change(changes, replace = false) {
  state = complete({ ...state, ...changes });
  history[replace ? "replaceState" : "pushState"](null, "", formatState(state));
  draw();
}

function choices(board) {
  const backbones = distinct(data.boards.map(boardLabel));
  const prompts = distinct(data.boards.filter((other) => boardLabel(other) === state.backbone).map((other) => other.prompt));
  const spaces = Object.entries(data.scores).map(([value, text]) => ({ value, text: `mAP, ${value === "mAP" ? "raw scores" : text}` }));
  const others = Object.keys(board.metrics).filter((name) => !(name in data.scores));
  const any = (values) => (distinct(values).length > 1 ? [{ value: "", text: "all" }, ...distinct(values)] : []);
  const withMetric = state.view === "table" || state.view === "cost";
  return [
    choice("Backbone", backbones, state.backbone, (backbone) => change({ backbone, sort: "", cell: "", column: "" })),
    choice("Prompt", prompts, state.prompt, (prompt) => change({ prompt, sort: "", cell: "", column: "" })),
    withMetric ? choice("Metric", [...spaces, ...others], state.metric, (metric) => change({ metric })) : null,
    choice("Tag", any(board.rows.map((row) => row.tag)), state.tag || "", (tag) => change({ tag })),
    choice("Setting", any(board.rows.map((row) => row.setting)), state.setting || "", (setting) => change({ setting })),
  ];
}

function filterBox() {
  const oninput = () => change({ filter: box.value }, true);
  const box = el("input", { type: "search", id: "filter", value: state.filter || "", placeholder: "method …", oninput });
  return el("label", { class: "choice" }, el("span", {}, "Filter"), box);
}

function tableView(board) {
  const caption = `${board.title}: ${state.metric}` + (state.baseline ? ` less that of ${state.baseline}` : "");
  const legend = state.baseline
    ? ["Each cell: difference, half of its 95 % interval, adjusted p. Coloured: significant. ",
      "Click the baseline's name again for the values."]
    : ["Bold is the best of a column and of each setting in it, over all rows, underlined is not significantly below the best of its setting; ",
      "small: the ranks that can't be excluded. ",
      "Click a name to compare with it, a cell for where it comes from."];
  const table = exportedTable(board, state);
  const without = () => change({ baseline: "" });
  const controls = state.baseline ? [el("button", { type: "button", onclick: without }, "No baseline")] : [];
  if (!table.rows.length) return { ...empty("No row is left: change the filter, tag or setting.", controls), caption };
  const said = board.sentence ? [el("p", { class: "sentence" }, board.sentence)] : [];
  return { controls, content: [...said, liveTable(board, state, change), note(...legend)], table, caption };
}

function viewOf(board) {
  const views = { table: tableView, classes: classesView, stream: streamView, cost: costView, published: publishedView };
  return views[state.view](board, state, change, data.shared);
}

function exportsOf(view) {
  const button = (text, onclick) => el("button", { type: "button", onclick }, text);
  return el("span", { class: "exports" },
    button("CSV", () => save("leaderboard.csv", toCsv(view.table), "text/csv")),
    button("LaTeX", () => save("leaderboard.tex", toLatex(view.table, view.caption), "text/plain")));
}

function draw() {
  const board = boardOf(state), held = heldFocus(), view = viewOf(board);
  const link = (name) => formatState({ ...state, view: name, of: "", cell: "" });
  const tabs = VIEWS.map((name) => el("a", { href: link(name), "aria-current": name === state.view ? "page" : null }, TITLES[name]));
  const notes = board.notes.map((text) => el("li", {}, text));
  live.replaceChildren(
    el("nav", { "aria-label": "Views" }, tabs),
    el("div", { class: "controls" },
      choices(board), view.controls, filterBox(), view.table.rows.length ? exportsOf(view) : null),
    el("h2", { class: "caption" }, view.caption || TITLES[state.view]),
    board.untrained ? el("p", { class: "warning" }, "The backbone is untrained: these numbers mean nothing.") : "",
    ...view.content,
    el("details", { class: "about-runs" }, el("summary", {}, "About these runs"), el("ul", {}, notes)),
    el("div", { id: "tip", role: "tooltip", hidden: true }));
  restoreFocus(held);
  drawDetails(board);
}

// Drawing anew must not take the keyboard's place away.
function heldFocus() {
  const at = document.activeElement;
  if (!live.contains(at)) return null;
  if (at.dataset.cell !== undefined) return { find: `td[data-cell="${at.dataset.cell}"]` };
  if (at.dataset.row !== undefined) return { find: `th[data-row="${at.dataset.row}"]` };
  if (at.id === "filter") return { find: "#filter", caret: at.selectionStart };
  const like = [...live.querySelectorAll(at.tagName)];
  return { find: at.tagName, place: like.indexOf(at) };
}

function restoreFocus(held) {
  if (!held) return;
  const at = live.querySelectorAll(held.find)[held.place || 0];
  if (!at) return;
  if (at.dataset.cell !== undefined || at.dataset.row !== undefined) {
    live.querySelectorAll("tbody [tabindex='0']").forEach((other) => (other.tabIndex = -1));
    at.tabIndex = 0;
  }
  at.focus({ preventScroll: true });
  if (held.caret !== undefined) at.setSelectionRange(held.caret, held.caret);
  hideTip();
}

function drawDetails(board) {
  const dialog = document.getElementById("details");
  if (!state.cell || state.view !== "table") { if (dialog.open) dialog.close(); return; }
  dialog.replaceChildren(...details(board, data.shared, cellAt(board, state.cell), () => dialog.close()));
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
}

// ------------------------------------------------------------------------------------------ theme, reloading, begin

// What this browser remembers of the reader's wishes; a page in a sandbox keeps nothing.
function kept(name, value) {
  try {
    if (value !== undefined) localStorage.setItem(name, value);
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

function themes() {
  const button = document.getElementById("theme"), kinds = ["system", "light", "dark"];
  const show = (kind) => {
    document.documentElement.dataset.theme = kind;
    button.textContent = `Theme: ${kind}`;
  };
  button.hidden = false;
  show(kinds.includes(kept("theme")) ? kept("theme") : "system");
  button.addEventListener("click", () => {
    const next = kinds[(kinds.indexOf(document.documentElement.dataset.theme) + 1) % kinds.length];
    kept("theme", next);
    show(next);
  });
}

// `ttabench view`: the same address answers with another mark as soon as there are other runs.
function watch() {
  setInterval(async () => {
    try {
      const now = (await fetch("/", { method: "HEAD", cache: "no-store" })).headers.get("ETag");
      if (now !== `"${data.mark}"`) location.reload();
    } catch { /* the server has been stopped; what is on screen stays */ }
  }, 1500);
}

function begin() {
  themes();
  if (data.mark) watch();
  if (!data.boards.length) return;
  const dialog = el("dialog", { id: "details", "aria-labelledby": "details-title" });
  dialog.addEventListener("close", () => { if (state.cell) change({ cell: "" }); });
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  document.body.append(dialog);
  document.getElementById("plain").hidden = true;
  live.hidden = false;
  const read = () => {
    const opening = location.hash.length > 1 ? {} : data.opening;
    state = complete({ ...parseState(location.hash), ...opening });
    draw();
  };
  addEventListener("popstate", read);
  matchMedia(NARROW).addEventListener("change", draw);
  read();
}

begin();
