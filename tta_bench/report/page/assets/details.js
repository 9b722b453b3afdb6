// Provenance: what is behind one cell.

function factList(facts) {
  return el("dl", {}, Object.entries(facts).map(([name, value]) => [el("dt", {}, name), el("dd", {}, String(value))]));
}

function section(title, ...content) {
  return el("section", {}, el("h3", {}, title), ...content);
}

function folded(title, facts) {
  return el("details", {}, el("summary", {}, title), factList(facts));
}

function commandLine(text) {
  const button = el("button", { type: "button", class: "copy", onclick: () => copy(text, button) }, "Copy");
  return el("div", { class: "command" }, el("code", {}, text), button);
}

function runFacts(run, shared) {
  const code = shared[run.code], commit = code.git_commit || "";
  const facts = {
    run: run.run, seed: run.seed, order: run.order, created: run.created || "not recorded",
    commit: commit ? commit + (code.git_dirty === "True" ? " (with changes that are not in it)" : "") : "not recorded",
    verified: run.verified === undefined ? "not verified" : shared[run.verified],
    seal: run.sealed ? "whole: the record is as it was written" : "none: the record can't vouch for itself",
  };
  if (run.notes !== undefined) facts.notes = shared[run.notes].join(" ");
  return facts;
}

function details(board, shared, cell, close) {
  const row = board.rows[Math.floor(cell / board.columns.length)], column = board.columns[cell % board.columns.length];
  const runs = board.runs[cell];
  const scores = (wanted) => Object.fromEntries(Object.entries(board.metrics).filter(([, m]) => wanted(m) && m.mean[cell] !== null).map(([name, m]) => {
    const interval = m.low && m.low[cell] !== null ? `, 95 % interval ${shown(m.low[cell])} to ${shown(m.high[cell])}` : "";
    return [name, shown(m.mean[cell]) + (m.sd[cell] === null ? "" : ` ± ${shown(m.sd[cell])} (sd)`) + interval];
  }));
  const parts = [
    el("header", {}, el("h2", { id: "details-title" }, `${row.name} on ${column.name}`), el("button", { type: "button", class: "close", onclick: close, "aria-label": "Close" }, "×")),
    section("Scores", factList(scores((m) => m.low)), folded("Other metrics", scores((m) => !m.low))),
  ];
  if (!runs.length) parts.push(el("p", {}, column.protocol ? "Nothing was run here." : "An average over the complete columns: open one of them."));
  for (const run of runs) {
    parts.push(section(`Replicate: seed ${run.seed}, order ${run.order}`, commandLine(run.command), factList(runFacts(run, shared)),
      folded("Code", shared[run.code]), folded("Versions", shared[run.versions]), folded("Hardware", shared[run.hardware])));
  }
  if (runs.length) {
    parts.push(section("Config", factList({ digest: row.config, tag: row.tag, setting: row.setting, status: row.status, ...shared[row.parts] })));
    parts.push(section("Protocol", factList({ digest: column.protocol, ...shared[column.parts], classes: shared[column.classes].length })));
  }
  return parts;
}
