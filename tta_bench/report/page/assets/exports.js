// What is on screen -> CSV and LaTeX. A table is { heads: [text], rows: [[{ text, bold, underlined }]] }. Pure functions.

function toCsv(table) {
  const lines = [table.heads, ...table.rows.map((row) => row.map((cell) => cell.text))];
  return lines.map((line) => line.map(csvCell).join(",")).join("\n") + "\n";
}

// A spreadsheet must not take text for a formula; a number may begin with a sign.
function csvCell(text) {
  const plain = text.replace(/−/g, "-").replace(/^–$/, "");
  const isNumber = /^[+-]?\d[\d.,]*(e[+-]?\d+)?$/.test(plain);
  const safe = !isNumber && /^[=+\-@\t]/.test(plain) ? "'" + plain : plain;
  return /[",\n\r]/.test(safe) ? `"${safe.replace(/"/g, '""')}"` : safe;
}

function toLatex(table, caption) {
  const lines = [`% ${caption.replace(/[\n\r]/g, " ")}`, `\\begin{tabular}{l${"r".repeat(table.heads.length - 1)}}`, "\\toprule"];
  lines.push(table.heads.map(latexText).join(" & ") + " \\\\", "\\midrule");
  for (const row of table.rows) lines.push(row.map(latexCell).join(" & ") + " \\\\");
  return [...lines, "\\bottomrule", "\\end{tabular}"].join("\n") + "\n";
}

function latexCell(cell) {
  const text = latexText(cell.text);
  if (cell.bold) return `\\textbf{${text}}`;
  return cell.underlined ? `\\underline{${text}}` : text;
}

function latexText(text) {
  const special = {
    "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}",
    "−": "$-$", "–": "--", "Δ": "$\\Delta$", "±": "$\\pm$", "<": "$<$", ">": "$>$",
  };
  const escaped = [...text].map((c) => special[c] || ("&%$#_{}".includes(c) ? "\\" + c : c)).join("");
  return /^[[*]/.test(escaped) ? "{}" + escaped : escaped;
}
