// SPDX-License-Identifier: Apache-2.0
// Shows the JSON of `ulpscope coverage`: what to write next, and operator by dtype.
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);
const WAYS = ["native", "fallback", "refused", "lacking", "died", "untold"];
const make = (name, text, kind) => {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (kind) made.className = kind;
  return made;
};
const sum = (rows, member) => rows.reduce((n, row) => n + row[member], 0);
const percent = (part, whole) => (whole > 0 ? ((100 * part) / whole).toFixed(1) : "0.0") + " %";
const calls = (n) => n + (n === 1 ? " call" : " calls");

at("head").textContent = `${data.device}: ${calls(data.calls)}; times are those of the CPU that asked`;
for (const way of WAYS) {
  const rows = data.operators.filter((row) => row.way === way);
  if (rows.length === 0) continue;
  const part = make("div", "", way);
  part.style.flexGrow = sum(rows, "calls");
  part.title = `${way}: ${calls(sum(rows, "calls"))}`;
  at("bar").append(part);
  at("legend").append(make("span", way, "way " + way), ` ${calls(sum(rows, "calls"))}, ` +
    `${percent(sum(rows, "cpu_seconds"), data.cpu_seconds)} of the time   `);
}

at("share").textContent = `Write next, for ${+(100 * data.share).toFixed(3)} % of the step`;
for (const op of data.next) {
  const rows = data.operators.filter((row) => row.op === op && row.way !== "native");
  at("next").append(make("li", `${op}: ${calls(sum(rows, "calls"))}, ` +
    `${percent(sum(rows, "cpu_seconds"), data.cpu_seconds)} of the time`));
}
if (data.next.length === 0) at("next").append(make("li", "nothing: that much runs natively", "none"));

const dtypes = [...new Set(data.operators.map((row) => row.dtypes))].map((name) => ({
  name, calls: sum(data.operators.filter((row) => row.dtypes === name), "calls") }));
dtypes.sort((a, b) => b.calls - a.calls);
const operators = [...new Set(data.operators.map((row) => row.op))].map((op) => {
  const rows = data.operators.filter((row) => row.op === op);
  return { op, rows, seconds: sum(rows, "cpu_seconds"), worst: Math.max(...rows.map((row) => WAYS.indexOf(row.way) % 5)) };
});
operators.sort((a, b) => b.worst - a.worst || b.seconds - a.seconds);
at("titles").append(make("th", "operator"), make("th", "time", "num"), ...dtypes.map((d) => make("th", d.name || "none")));

function show() {
  const wanted = at("filter").value.toLowerCase();
  at("rows").replaceChildren();
  for (const { op, rows, seconds } of operators) {
    if (!at("native").checked && rows.every((row) => row.way === "native")) continue;
    if (!rows.some((row) => [row.op, row.dtypes, row.why, row.way].join(" ").toLowerCase().includes(wanted))) continue;
    const line = make("tr");
    line.append(make("td", op), make("td", percent(seconds, data.cpu_seconds), "num"));
    for (const dtype of dtypes) {
      const cell = make("td");
      for (const row of rows.filter((r) => r.dtypes === dtype.name)) {
        const told = make("span", `${row.way} ${row.calls}`, "way " + row.way);
        told.title = `${calls(row.calls)}${row.why ? ": " + row.why : ""}`;
        cell.append(told, make("br"));
        if (row.way !== "native" && row.why) cell.append(make("span", row.why, "quiet"));
      }
      line.append(cell);
    }
    at("rows").append(line);
  }
}
at("filter").addEventListener("input", show);
at("native").addEventListener("input", show);
show();
