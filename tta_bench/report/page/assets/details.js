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

function score(metric, cell) {
  const spread = metric.sd[cell] === null ? "" : ` ± ${shown(metric.sd[cell])} (sd)`;
  const hasInterval = metric.low && metric.low[cell] !== null;
  const interval = hasInterval ? `, 95 % interval ${shown(metric.low[cell])} to ${shown(metric.high[cell])}` : "";
  return shown(metric.mean[cell]) + spread + interval;
}

function details(board, shared, cell, close) {
  const row = board.rows[Math.floor(cell / board.columns.length)], column = board.columns[cell % board.columns.length];
  const runs = board.runs[cell];
  const metrics = Object.entries(board.metrics).filter(([, metric]) => metric.mean[cell] !== null);
  const scores = (wanted) => Object.fromEntries(
    metrics.filter(([, metric]) => wanted(metric)).map(([name, metric]) => [name, score(metric, cell)]));
  const parts = [
    el("header", {},
      el("h2", { id: "details-title" }, `${row.name} on ${column.name}`),
      el("button", { type: "button", class: "close", onclick: close, "aria-label": "Close" }, "×")),
    section("Scores", factList(scores((m) => m.low)), folded("Other metrics", scores((m) => !m.low))),
  ];
  if (!runs.length) {
    parts.push(el("p", {}, column.protocol ? "Nothing was run here." : "An average over the complete columns: open one of them."));
  }
  for (const run of runs) {
    parts.push(section(`Replicate: seed ${run.seed}, order ${run.order}`,
      commandLine(run.command), factList(runFacts(run, shared)),
      folded("Code", shared[run.code]), folded("Versions", shared[run.versions]), folded("Hardware", shared[run.hardware])));
  }
  if (runs.length) {
    const { config: digest, tag, setting, status } = row, classes = shared[column.classes].length;
    parts.push(section("Config", factList({ digest, tag, setting, status, ...shared[row.parts] })));
    parts.push(section("Protocol", factList({ digest: column.protocol, ...shared[column.parts], classes })));
  }
  return parts;
}
