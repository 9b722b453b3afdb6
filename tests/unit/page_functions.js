// The pure functions of the page, in node: `node page_functions.js FOLDER-OF-ASSETS`. Ends with an error if one is wrong.

const assert = require("node:assert");
const fs = require("node:fs");
const path = require("node:path");

const files = ["numbers", "state", "exports", "grid"].map((name) => fs.readFileSync(path.join(process.argv[2], `${name}.js`), "utf8"));
const names = [
  "unpack", "classSigns", "knownSort", "fromPoints", "fromProbability", "difference", "shown", "signed", "shownP", "scaled", "rankText", "paretoFront", "ticks", "largeOf", "strength",
  "parseState", "formatState", "nextSort", "keptRows", "sortedRows", "cellName", "cellAt", "toCsv", "toLatex", "isSignificant", "exportedTable", "cellFacts", "sharedAp",
];
const page = new Function(`${files.join("\n")}\nreturn { ${names.join(", ")} };`)();

const pack = (...codes) => Buffer.from(Uint16Array.from(codes).buffer).toString("base64");
const pair = (points, p = 4096) => [20000 + points, 50, p, p];

const checks = {
  "numbers are read as they were packed"() {
    assert.deepEqual(page.unpack(pack(0, 258, 65535)), [0, 258, 65535]);
    assert.equal(page.fromPoints(20123), 1.23);
    assert.equal(page.fromPoints(65535), null);
    assert.ok(Math.abs(page.fromProbability(4096) - 0.1) < 1e-12);
  },
  "signs of classes are read from either side"() {
    const signs = { "2,0": "h" + "b", "1,0": "" }; // 7 = 1 + 3 * 2: plus, minus, nothing; then plus
    assert.deepEqual(page.classSigns(signs, 4, 2, 0), ["+", "-", "", "+"]);
    assert.deepEqual(page.classSigns(signs, 4, 0, 2), ["-", "+", "", "-"]);
    assert.deepEqual(page.classSigns(signs, 2, 1, 0), ["", ""]);
    assert.equal(page.classSigns(signs, 4, 2, 1), null);
  },
  "a dataset stands for its first column"() {
    const columns = [{ name: "toy (5 of 9)", dataset: "toy" }, { name: "average of 1", dataset: "" }];
    assert.equal(page.knownSort(columns, "-toy"), "-toy (5 of 9)");
    assert.equal(page.knownSort(columns, "-average"), "-average of 1");
    assert.equal(page.knownSort(columns, "method"), "method");
    assert.equal(page.knownSort(columns, "-gone"), "");
  },
  "one outlier does not set the scale"() {
    assert.equal(page.largeOf([...Array(19).fill(-3), 90, null]), 3);
    assert.equal(page.largeOf([null]), 0);
  },
  "a difference is found from either side"() {
    const pairs = { all: pack(...pair(100), ...pair(200), ...pair(300)), against: {} }; // of the rows (0, 1), (0, 2), (1, 2)
    assert.equal(page.difference(pairs, 3, 0, 2).value, 2);
    assert.equal(page.difference(pairs, 3, 2, 1).value, -3);
    assert.equal(page.difference(pairs, 3, 2, 1).half, 0.5);
    assert.equal(page.difference(pairs, 3, 1, 1), null);
    const four = { all: pack(...[1, 2, 3, 4, 5, 6].flatMap((points) => pair(100 * points))), against: {} };
    assert.equal(page.difference(four, 4, 2, 3).value, 6);
    assert.equal(page.difference(four, 4, 3, 1).value, -5);
    assert.equal(page.difference(null, 3, 0, 1), null);
  },
  "an interval of a few photos is wide, and never nothing"() {
    const facts = (half) => {
      const pairs = [{ all: pack(21966, half, 4096, 4096), against: {} }];
      const board = {
        metrics: { mAP: { mean: [60, 40.34] } }, statistics: { mAP: { pairs } },
        columns: [{ name: "toy", protocol: "p" }], rows: [{ name: "dmn" }, { name: "purf" }], runs: [[], []],
      };
      return page.cellFacts(board, { metric: "mAP" }, 0, 0, 1);
    };
    assert.equal(facts(23596).half, "±235.96");
    assert.ok(facts(23596).about.includes("95 % interval −216.30 to +255.62"));
    assert.equal(facts(0xfffe).half, "±> 655");
    assert.ok(facts(0xfffe).about.includes("more than 655 to either side"));
    assert.equal(facts(0xffff).half, "±–");
    assert.ok(facts(0xffff).about.includes("no interval"));
  },
  "a difference rests on the seeds that two rows share"() {
    const points = (...values) => Buffer.from(Uint8Array.from(values.flatMap((v) => [0, 8, 16].map((s) => ((v * 10000) >> s) & 255)))).toString("base64");
    const runs = (...seeds) => seeds.map((seed) => ({ seed, order: "shuffled" }));
    const board = {
      columns: [{ name: "toy", protocol: "p" }, { name: "average", protocol: "" }], rows: [{ name: "dmn" }, { name: "tda" }, { name: "dpe" }],
      runs: [runs(0, 1), [], runs(1, 2), [], runs(5), []],
      ap: [points(45, 10), null, points(60, 20), null, points(1, 1), null],
      uneven: [[points(40, 10), points(50, 10)], null, [points(55, 30), points(65, 10)], null, [points(1, 1)], null],
      metrics: { CF1: { mean: [50, 50, 60, 60, 1, 1] } }, statistics: {},
    };
    assert.deepEqual(page.sharedAp(board, 2, 0), [[55, 30], [50, 10]]);
    assert.deepEqual(page.sharedAp(board, 4, 0), [[null, null], [null, null]]);
    for (const column of [0, 1]) {
      const fact = page.cellFacts(board, { metric: "CF1" }, 1, column, 0);
      assert.deepEqual([fact.text, fact.about], ["–", "the two are over other seeds or orders, and this has no test"]);
    }
    board.runs[2] = runs(1, 0);
    assert.equal(page.cellFacts(board, { metric: "CF1" }, 1, 1, 0).text, "+10.00");
    board.uneven = board.uneven.map(() => null);
    assert.deepEqual(page.sharedAp(board, 2, 0), [[60, 20], [45, 10]]);
  },
  "a family comes before the exploring"() {
    const missing = [65535, 65535, 65535, 65535];
    const pairs = { all: pack(...pair(100), ...pair(200), ...pair(300)), against: { 0: pack(...missing, ...pair(-150, 8192), ...missing) } };
    assert.deepEqual([page.difference(pairs, 3, 1, 0).value, page.difference(pairs, 3, 1, 0).correction], [-1.5, "Holm"]);
    assert.equal(page.difference(pairs, 3, 0, 1).value, 1.5);
    assert.equal(page.difference(pairs, 3, 2, 0).value, -2); // not in the family: from the pairs
    assert.ok(page.isSignificant(page.difference(pairs, 3, 1, 0)) && !page.isSignificant(page.difference(pairs, 3, 2, 0)));
  },
  "numbers as text"() {
    assert.deepEqual([page.shown(1.005), page.shown(null), page.shown(NaN), page.shown(1e308)], ["1.00", "–", "–", "1.00e+308"]);
    assert.deepEqual([page.signed(1.234), page.signed(-1.234), page.signed(-0.001), page.signed(0)], ["+1.23", "−1.23", "0.00", "0.00"]);
    assert.deepEqual([page.shownP(0.0001), page.shownP(0.0312), page.shownP(0.5), page.shownP(null)], ["< 0.001", "0.031", "0.50", "–"]);
    assert.deepEqual([page.scaled(999), page.scaled(1234567), page.scaled(0)], ["999", "1.23 M", "0"]);
    assert.deepEqual([page.rankText([1, 1]), page.rankText([1, 4]), page.rankText(null)], ["1", "1–4", ""]);
  },
  "nothing on the front is beaten in both"() {
    const points = [{ x: 1, y: 5 }, { x: 2, y: 5 }, { x: 3, y: 1 }, { x: 2, y: 4 }];
    assert.deepEqual(page.paretoFront(points, true), [{ x: 3, y: 1 }, { x: 2, y: 5 }]);
    assert.deepEqual(page.paretoFront(points, false), [{ x: 1, y: 5 }]);
  },
  "ticks are round and within"() {
    assert.deepEqual(page.ticks(0, 100), [0, 20, 40, 60, 80, 100]);
    assert.deepEqual(page.ticks(-0.3, 0.3), [-0.2, 0, 0.2]);
    assert.ok(page.ticks(5, 5).length >= 1);
    assert.deepEqual([page.strength(5, 10), page.strength(-20, 10), page.strength(1, 0)], [0.5, -1, 0]);
  },
  "a link gives back the state"() {
    const state = { view: "classes", filter: "a&b=#%", baseline: "clip [tuned: α=1]" };
    assert.deepEqual(page.parseState(page.formatState(state)), state);
    assert.deepEqual(page.parseState("#view=nonsense&evil=1"), { view: "table" });
    assert.equal(page.formatState({ view: "table" }), "#");
  },
  "a click sorts, a second turns round"() {
    assert.equal(page.nextSort("-a", "b", true), "-b");
    assert.equal(page.nextSort("-b", "b", true), "b");
    assert.equal(page.nextSort("-b", "method", false), "method");
  },
  "rows are kept by words, tag and setting"() {
    const rows = [{ name: "TDA fast", tag: "default", setting: "online" }, { name: "purf", tag: "tuned", setting: "online" }];
    assert.deepEqual(page.keptRows(rows, { filter: "fast tda" }).map((row) => row.number), [0]);
    assert.deepEqual(page.keptRows(rows, { tag: "tuned", setting: "online" }).map((row) => row.number), [1]);
    assert.equal(page.keptRows(rows, {}).length, 2);
  },
  "what has no value comes last whichever way"() {
    const rows = [{ number: 0, v: null }, { number: 1, v: 1 }, { number: 2, v: 3 }];
    assert.deepEqual(page.sortedRows(rows, (row) => row.v, true).map((row) => row.number), [2, 1, 0]);
    assert.deepEqual(page.sortedRows(rows, (row) => row.v, false).map((row) => row.number), [1, 2, 0]);
  },
  "a cell goes by its names"() {
    const board = { rows: [{ name: "a" }, { name: "b" }], columns: [{ name: "x" }, { name: "y" }], runs: [[], [], [], []] };
    assert.equal(page.cellName(board, 2), "b on x");
    assert.equal(page.cellAt(board, "b on x"), 2);
    assert.equal(page.cellAt(board, "c on x"), null);
  },
  "among differences the baseline has none, and ranks are among all that were tested"() {
    const metrics = { mAP: { mean: [50, 52], sd: [null, null], low: [48, 50], high: [52, 54] } };
    const statistics = { mAP: { close: "00", ranks: [[1, 5], [1, 5]], ranked: [5], pairs: [{ all: pack(...pair(-200)), against: {} }] } };
    const row = (name) => ({ name, setting: "online", tag: "default" });
    const board = { rows: [row("clip"), row("tda")], columns: [{ name: "toy", protocol: "p" }], runs: [[{}], [{}]], metrics, statistics };
    const state = { metric: "mAP", baseline: "clip", filter: "", tag: "", setting: "" };
    const lines = page.toCsv(page.exportedTable(board, state)).split("\n");
    assert.deepEqual(lines.slice(0, 3), ["method,toy Δ,toy ± 95 %,toy p", "tda,+2.00,0.50,0.10", "clip,,,"]);
    assert.equal(page.exportedTable(board, { ...state, baseline: "" }).rows[1][1].text, "50.00");
    assert.ok(page.cellFacts(board, { ...state, baseline: "" }, 0, 0, null).about.endsWith("rank 1–5 of 5"));
  },
  "csv is no formula and no second column"() {
    const table = { heads: ["method", 'a"b'], rows: [[{ text: "=cmd()" }, { text: "−1.50" }], [{ text: "a,b" }, { text: "–" }]] };
    assert.equal(page.toCsv(table), `method,"a""b"\n'=cmd(),-1.50\n"a,b",\n`);
  },
  "latex is escaped, and marked"() {
    const table = { heads: ["method", "x_1"], rows: [[{ text: "[50%]" }, { text: "−1.5", bold: true }], [{ text: "\\input{a}" }, { text: "2", underlined: true }]] };
    const text = page.toLatex(table, "one\ntwo");
    assert.ok(text.startsWith("% one two\n\\begin{tabular}{lr}"));
    for (const part of ["x\\_1", "{}[50\\%] & \\textbf{$-$1.5} \\\\", "\\textbackslash{}input\\{a\\} & \\underline{2} \\\\"]) assert.ok(text.includes(part), part);
  },
};

for (const [name, check] of Object.entries(checks)) {
  check();
  console.log(`ok: ${name}`);
}
