// SPDX-License-Identifier: Apache-2.0
// The page of ulpscope diff: what is shown of the JSON that diff_page.c puts before it.
"use strict";
const data = JSON.parse(document.getElementById("data").textContent), by = id => document.getElementById(id);
const begins = new Set(["made", "grew", "erred", "asked", "entered", "drew", "unpaired", "beyond"]);
const size = r => r.out === null ? 0 : r.out.n_special > 0 ? Infinity : r.out.worst ?? Infinity;
const show = x => x === null || x === undefined ? "" : x === Infinity ? "NaN/Inf" : Math.abs(x) >= 1e5 || (x !== 0 && Math.abs(x) < 1e-3) ? x.toExponential(3) : String(+x.toPrecision(6));
const short = x => x === Infinity ? show(x) : show(+x.toPrecision(3));
const counted = (n, one, many) => `${n} ${n === 1 ? one : many}`;
const colour = x => x === 0 ? "#e9f3ed" : `hsl(${Math.max(0, 60 - 9 * Math.log10(Math.min(x, 1e7) + 1))},85%,82%)`;
const put = (parent, tag, text, cls) => { const e = document.createElement(tag); e.textContent = text; if (cls) e.className = cls; parent.append(e); return e; };
by("head").textContent = `A ${data.a}: ${data.calls_a} calls. B ${data.b}: ${data.calls_b} calls. ${data.paired} paired; without a partner ${data.unpaired_a.length} of A, ${data.unpaired_b.length} of B. Compared by ${data.basis}.`;
const first = by("first");
if (data.first) {
  put(first, "b", `The runs part at call ${data.first.call_a} of A, ${data.first.call_b} of B: ${data.first.op}${data.first.module ? " in " + data.first.module : ""}, step ${data.first.step}, ${data.first.phase}`);
  put(first, "div", `${data.first.kind}: ${data.first.sentence}`);
  put(first, "div", `paired ${data.first.how}; ${counted(data.first.carried, "call inherits", "calls inherit")} it`, "quiet");
} else { first.classList.add("same"); put(first, "b", "The runs are the same within rounding."); }
const tree = new Map();
for (const r of data.rows) {
  const parts = r.module ? r.module.split(".") : [];
  for (let n = 0; n <= parts.length; n++) {
    const path = parts.slice(0, n).join("."), t = tree.get(path) ?? {worst: 0, n: 0, begins: 0};
    t.worst = Math.max(t.worst, size(r)); t.n++; t.begins += begins.has(r.kind); tree.set(path, t);
  }
}
for (const [path, t] of [...tree].sort((a, b) => a[0] < b[0] ? -1 : 1)) {
  const d = put(by("tree"), "div", ""), depth = path ? path.split(".").length : 0;
  put(d, "span", "\u00a0".repeat(2 * depth) + (path ? path.split(".").pop() : "(all)"));
  put(d, "i", short(t.worst)).style.background = colour(t.worst);
  put(d, "span", `${counted(t.n, "call differs", "calls differ")}${t.begins ? `, ${counted(t.begins, "begins", "begin")} it` : ""}`, "quiet");
  d.onclick = () => { by("filter").value = path; fill(); };
}
const rowOf = new Map(data.rows.map(r => [r.call_a, r])), chain = [];
if (data.first) {
  const led = data.rows.filter(r => r.source === data.first.call_a), forward = led.filter(r => r.phase === "forward");
  let at = (forward.length ? forward : led).at(-1);
  for (; at && chain.length < 400; at = at.call_a === data.first.call_a ? null : rowOf.get(at.from)) chain.unshift(at);
}
for (const r of chain.length ? chain : data.first ? [data.first] : []) {
  const a = put(by("chain"), "a", `${r.module ? r.module + ": " : ""}${r.op.replace("aten::", "")} ${short(size(r))}`);
  a.title = `call ${r.call_a}`; a.style.background = colour(size(r));
}
const columns = [["call A", r => r.call_a], ["call B", r => r.call_b], ["phase", r => r.phase], ["operator", r => r.op], ["module", r => r.module ?? ""],
  ["kind", r => r.kind], ["inputs", r => r.in ? r.in.n_special > 0 ? Infinity : r.in.worst ?? Infinity : 0], ["results", size], ["inherit", r => r.carried], ["paired", r => r.how]];
let sorted = 0, down = false;
columns.forEach(([name], i) => put(by("titles"), "th", name).onclick = () => { down = sorted === i ? !down : i >= 6; sorted = i; fill(); });
for (const kind of new Set(data.rows.map(r => r.kind))) put(by("kind"), "option", kind).value = kind;
function numbers(r, into) {
  const table = put(into, "table", "");
  const head = put(table, "tr", ""); for (const h of [r.out ? r.out.path : "", "A", "B"]) put(head, "th", h);
  for (const name of ["n", "n_nan", "min", "max", "mean", "l2"]) {
    const line = put(table, "tr", ""); put(line, "td", name); put(line, "td", show(r.result_a?.[name])); put(line, "td", show(r.result_b?.[name]));
  }
}
function fill() {
  const text = by("filter").value.toLowerCase(), kind = by("kind").value, key = columns[sorted][1];
  const found = data.rows.filter(r => (!kind || r.kind === kind) && `${r.op} ${r.module} ${r.sentence}`.toLowerCase().includes(text));
  found.sort((a, b) => { const x = key(a), y = key(b); return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1); });
  by("count").textContent = `${found.length} of ${data.rows.length}${found.length > 500 ? ", the first 500 shown" : ""}`;
  by("rows").replaceChildren();
  for (const r of found.slice(0, 500)) {
    const line = put(by("rows"), "tr", "", begins.has(r.kind) ? "begins" : "");
    columns.forEach(([, value], i) => { const x = value(r), td = put(line, "td", typeof x === "number" ? i < 2 ? x : short(x) : x, typeof x === "number" ? "num" : ""); if (i === 7) td.style.background = colour(x); });
    line.onclick = () => {
      if (line.nextSibling?.className === "more") { line.nextSibling.remove(); return; }
      const more = document.createElement("tr"), cell = put(more, "td", ""); more.className = "more"; cell.colSpan = columns.length;
      put(cell, "pre", r.sentence); numbers(r, cell); line.after(more);
    };
  }
}
by("filter").oninput = by("kind").onchange = fill; fill();
if (data.first) by("rows").querySelector("tr.begins")?.click();
