// SPDX-License-Identifier: Apache-2.0
// Shows the data that report_html.c embedded: words and pieces that all pages share, the table
// of calls, and the ways between the pages. report_overview.js, report_step.js and
// report_call.js, one script with this file, draw the rest.
// All text goes through textContent: names come from the user's model. The state of the
// page is its hash: "#call-12", or "#q=softmax&verdict=wrong,reduced&sort=bits&page=2".

const wanted = document.getElementById(`data-rank-${new URLSearchParams(location.search).get("rank")}`);
const data = JSON.parse((wanted || document.getElementById("data")).textContent);
/* A trace has other words in the place of verdicts, and calls that report_trace.js makes. */
const TRACE_TEXTS = ["phase", "op", "module", "module_class", "verdict", "args", "results", "status"];
const TRACE_NUMBERS = ["parent", "detailed", "n_nan", "n_inf", "min", "max"];
/* A call is a list of these; a text is its place in data.texts (put_row of report_html.c). */
const TEXTS = ["phase", "op", "culprit", "module", "module_class", "verdict", "cause", "sentence", "notes", "output",
  "args", "excuse"];
const NUMBERS = ["finding", "marks", "bits", "yardstick_bits", "loss", "excused", "opinions", "n_elements", "stands_for",
  "t_device", "t_reference", "t_perturbed", "t_judge", "t_causes", "t_total"];
const [KNOWN, ALLOWED, USUAL, BOUND, DETAILED] = [1, 2, 4, 8, 16];
const MUCH = 0.03; // more of an output excused than this is said

function callOf(row) {
  const c = { call: row[0], step: row[1] };
  TEXTS.forEach((name, i) => { c[name] = data.texts[row[2 + i]]; });
  NUMBERS.forEach((name, i) => { c[name] = row[2 + TEXTS.length + i]; });
  c.known = (c.marks & KNOWN) !== 0;
  c.allowed = (c.marks & ALLOWED) !== 0;
  c.usual = (c.marks & USUAL) !== 0;
  c.bound = (c.marks & BOUND) !== 0;
  return c;
}

const PAGE = 100;
const KIND = data.trace ? { raised: "bad", unfinished: "warn", born: "bad", carried: "warn", captured: "dim" } : {
  crashed: "bad", timeout: "bad", nonfinite: "bad", wrong: "bad", reduced: "warn",
  intermittent: "warn", undefined: "dim", unjudged: "dim", unsupported: "dim", pass: "good",
};
const ORDER = Object.keys(KIND);
const MEANS = data.trace ? { raised: "it ended with an exception", unfinished: "the run ended inside it",
  born: "results hold NaN or Inf, arguments do not", carried: "results hold NaN or Inf, and so do arguments",
  captured: "as far as it was looked at without judging: results are numbers" } : {
  crashed: "the device's process died", timeout: "the device gave no answer in time",
  nonfinite: "NaN or Inf where the truth is finite, or the reverse",
  wrong: "no usual precision explains it: a few elements far off, or fewer than 4.5 bits",
  reduced: "the right formula in narrower arithmetic than was asked for",
  intermittent: "different answers to the same call, not all of them right",
  undefined: "it differs only where the operator has no one right answer",
  unjudged: "it could not be decided; the reason stands beside it",
  unsupported: "the device has no such operator", pass: "no less accurate than float32 may be, whatever the order of adding",
};
const ACCUSED = new Set(data.trace ? ["raised", "born"] : ORDER.slice(0, 6));
const byId = (id) => document.getElementById(id);

/* el("p", {class: "quiet"}, "text", node, ...) */
function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {}))
    if (value !== null && value !== undefined) node.setAttribute(name, value);
  node.append(...children.filter((c) => c !== null && c !== undefined && c !== ""));
  return node;
}

function svg(tag, attributes, text) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

// ---- words ----------------------------------------------------------------

const count = (n) => n.toLocaleString("en-US");
const plural = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;
const percent = (part, whole) => (whole > 0 ? `${((100 * part) / whole).toFixed(0)} %` : "-");
const named = (c) => (c.culprit ? `${c.op} › ${c.culprit}` : c.op);
const place = (c) => c.module || `(${c.phase || "root"})`;

/* A path that may break behind its dots. */
function dotted(path) {
  const parts = path.split(".");
  return el("span", null, ...parts.flatMap((p, i) => (i > 0 ? [el("wbr"), `.${p}`] : [p])));
}

/* Values that JSON has no number for come as "nan", "inf", "-inf". */
function number(v) {
  if (v === null || v === undefined) return "-";
  if (typeof v !== "number") return { nan: "NaN", inf: "∞", "-inf": "-∞" }[v] || String(v);
  if (Number.isInteger(v) && Math.abs(v) < 1e6) return String(v);
  return Number(v.toPrecision(9)).toString();
}

function rounded(v, digits) {
  return typeof v === "number" ? Number(v.toPrecision(digits)).toString() : number(v);
}

function duration(ns) {
  if (ns >= 60e9) return `${Math.floor(ns / 60e9)} min ${Math.round((ns / 1e9) % 60)} s`;
  if (ns >= 1e9) return `${(ns / 1e9).toFixed(1)} s`;
  return ns >= 1e6 ? `${(ns / 1e6).toFixed(1)} ms` : `${(ns / 1e3).toFixed(0)} µs`;
}

const calls = data.calls.map(data.trace ? traceCall : callOf);
data.calls = null;
if (data.trace) Object.assign(data, { summary: traceSummary(), findings: [], run: { device: data.path, trace: data.path } });

const pill = (verdict) => el("span", { class: `pill ${KIND[verdict] || "dim"}`, title: MEANS[verdict] }, verdict);

/* Bits with one digit as the sentence has them: a quarter goes to the even digit below. */
function tenths(bits) {
  const shown = Math.max(0, bits);
  return ((4 * shown) % 4 === 1 ? Math.floor(10 * shown) / 10 : shown).toFixed(1);
}

function bitsText(c) {
  const known = typeof c.yardstick_bits === "number";
  return `${c.bound ? "≥ " : ""}${tenths(c.bits)}` + (known ? ` / ${tenths(c.yardstick_bits)}` : "");
}

/* What is said beside a verdict: why it does not count, or how much went free. */
function markText(c) {
  const words = [c.known && "known", c.allowed && "allowed", c.usual && "usual: torch's own CPU kernel does no better",
    c.excused > MUCH && `${Math.max(1, Math.round(100 * c.excused))} % of an output excused${c.excuse ? `: ${c.excuse}` : ""}`];
  return words.filter(Boolean).join(", ");
}

/* Effective bits as text and as a bar of 24; the tick is the yardstick's. */
function bitsBar(c) {
  if (typeof c.bits !== "number") return el("span", { class: "quiet" }, "-");
  const part = (bits) => `${Math.min(100, Math.max(0, (100 * bits) / 24))}%`;
  const known = typeof c.yardstick_bits === "number";
  const text = bitsText(c);
  const track = el("span", { class: "track", "aria-hidden": "true" },
    el("i", { style: `width:${part(c.bits)}` }));
  if (known) track.append(el("u", { style: `left:calc(${part(c.yardstick_bits)} - 2px)` }));
  return el("span", { class: `bits ${KIND[c.verdict] || "dim"}`,
    title: "effective bits on the device / those of float32 as the CPU computes it" },
  el("span", { class: "text" }, text), track);
}

/* What the error means for the loss of the captured step, to first order. */
const lossText = (c) => (typeof c.loss === "number" ? c.loss.toPrecision(2) : "-");

/* The self-test tells by operator, as b: the smallest relative error that is caught is 2^-b. */
const probes = data.summary.self_test || {};
const least = (b) => (typeof b === "number" ? (2 ** -b).toExponential(1) : "none");

function caughtText(c) {
  const probe = c.verdict === "pass" && typeof c.bits === "number" ? probes[c.op] : null;
  if (!probe || !probe.bits) return null;
  const { noise, element } = probe.bits;
  if (noise === null && element === null) return "no error would have been caught on these data";
  return `would have caught an error of ${least(noise)} in all elements, ${least(element)} in one`;
}

const accusers = (c) => data.summary.standards.filter((s, i) => c.opinions[i] === "w").map((s) => s.name);

function opinions(c) {
  const names = accusers(c);
  const judged = [...c.opinions].filter((v) => v === "w" || v === "p").length;
  const text = judged === 0 ? "-" : names.length === 0 ? "none" : names.length < 3 ? names.join(", ")
    : `${names.length} of ${judged}`;
  return el("span", { title: names.join(", ") || null }, text);
}

function list(pairs) {
  const dl = el("dl");
  for (const [name, value] of pairs)
    if (value !== "" && value !== null && value !== undefined)
      dl.append(el("dt", null, name), el("dd", null, value));
  return dl;
}

function table(titles, rows) {
  const head = el("tr", null, ...titles.map(([text, kind]) => el("th", { scope: "col", class: kind }, text)));
  const body = rows.map((row) => el("tr", null,
    ...row.map((cell, i) => el("td", { class: titles[i][1] }, cell))));
  return el("div", { class: "scroll" }, el("table", null, el("thead", null, head), el("tbody", null, ...body)));
}

function timeBar(t, causes) {
  const rest = Math.max(0, t.total - t.device - t.reference - t.perturbed - t.judge - causes);
  const parts = [["device", t.device], ["reference", t.reference],
    ["perturbed replays", t.perturbed], ["judge", t.judge], ["overhead", rest],
    ...(causes > 0 ? [["causes", causes]] : [])];
  const bar = el("div", { class: "share", "aria-hidden": "true" });
  const legend = el("div", { class: "legend" });
  parts.forEach(([name, ns], i) => {
    if (ns > 0) bar.append(el("i", { class: `t${i}`, style: `flex:${ns}` }));
    legend.append(el("span", null, el("i", { class: `t${i}` }),
      `${name} ${duration(ns)} (${percent(ns, t.total)})`));
  });
  return el("div", null, bar, legend);
}

// ---- the table ------------------------------------------------------------

const COLUMNS = (data.trace ? traceColumns() : [
  { id: "call", title: "Call", number: true, key: (c) => c.call },
  { id: "verdict", title: "Verdict", key: (c) => ORDER.indexOf(c.verdict) },
  { id: "op", title: "Operator", key: named },
  { id: "module", title: "Module", key: place },
  { id: "step", title: "Step", key: (c) => `${String(c.step).padStart(12, "0")}${c.phase}` },
  { id: "bits", title: "Bits / float32", key: (c) => (typeof c.bits === "number" ? c.bits : Infinity) },
  { id: "loss", title: "Loss ±", number: true, key: (c) => (typeof c.loss === "number" ? -c.loss : Infinity) },
  { id: "standards", title: "Accused by", key: (c) => -accusers(c).length },
  { id: "sentence", title: "Why", key: (c) => c.sentence },
]).filter((c) => c.id !== "standards" || data.summary.standards.length > 1);
const WORST = "";
let state = { q: "", finding: -1, verdicts: new Set(), sort: WORST, down: false, page: 0 };
let shown = calls;

/* Made when somebody filters: 100,000 calls open at once without. */
function haystackOf(c) {
  c.haystack ??= [c.op, c.culprit, c.module, place(c), c.verdict, c.phase, c.cause, c.sentence, `#${c.call}`,
    ...accusers(c).map((name) => `accused by ${name}`)].join("\n").toLowerCase();
  return c.haystack;
}

function choose() {
  const words = state.q.toLowerCase().split(/\s+/).filter(Boolean);
  shown = calls.filter((c) => (state.verdicts.size === 0 || state.verdicts.has(c.verdict)) &&
    (state.finding < 0 || c.finding === state.finding) && words.every((w) => haystackOf(c).includes(w)));
  const column = COLUMNS.find((c) => c.id === state.sort);
  if (!column) return; // as the report orders them: worst first
  const keyed = shown.map((c, i) => [column.key(c), i, c]);
  const sign = state.down ? -1 : 1;
  keyed.sort((a, b) => (a[0] < b[0] ? -sign : a[0] > b[0] ? sign : a[1] - b[1]));
  shown = keyed.map((k) => k[2]);
}

function tableRow(c) {
  const to = `#call-${c.call}`;
  return el("tr", null,
    el("td", { class: "number" }, el("a", { href: to }, `#${c.call}`)),
    el("td", null, pill(c.verdict), markText(c) && el("div", { class: "quiet mark" }, markText(c))),
    el("td", { class: "op" }, el("a", { href: to }, el("code", null, named(c)))),
    el("td", { class: "module mono" }, dotted(place(c))),
    el("td", { class: "when" }, `${c.step} ${c.phase}`),
    el("td", null, bitsBar(c)),
    el("td", { class: "number" }, lossText(c)),
    data.summary.standards.length > 1 ? el("td", { class: "by" }, opinions(c)) : null,
    el("td", { class: "why" }, c.sentence || c.cause,
      caughtText(c) && el("div", { class: "quiet" }, caughtText(c))));
}

function drawPages() {
  const last = Math.max(0, Math.ceil(shown.length / PAGE) - 1);
  state.page = Math.min(state.page, last);
  const button = (text, page) => {
    const b = el("button", { type: "button" }, text);
    b.disabled = page < 0 || page > last;
    b.addEventListener("click", () => change({ page }));
    return b;
  };
  byId("pages").replaceChildren(button("Previous", state.page - 1),
    el("span", { class: "quiet" }, `page ${state.page + 1} of ${last + 1}`), button("Next", state.page + 1));
  byId("pages").hidden = last === 0;
}

function drawTable() {
  choose();
  drawPages();
  for (const th of byId("head").children) {
    if (th.dataset.id === state.sort) th.setAttribute("aria-sort", state.down ? "descending" : "ascending");
    else th.removeAttribute("aria-sort");
  }
  drawFindingChip();
  for (const chip of byId("chips").querySelectorAll("[data-verdict]"))
    chip.setAttribute("aria-pressed", String(state.verdicts.has(chip.dataset.verdict)));
  byId("count").textContent = shown.length === calls.length ? plural(calls.length, "call")
    : `${count(shown.length)} of ${plural(calls.length, "call")}`;
  const from = state.page * PAGE;
  byId("rows").replaceChildren(...shown.slice(from, from + PAGE).map(data.trace ? traceRow : tableRow));
}

/* What the table is narrowed to, with a way out. */
function drawFindingChip() {
  const f = data.findings[state.finding];
  const box = byId("finding");
  box.hidden = !f;
  if (!f) return;
  const all = el("button", { type: "button", class: "chip dim" }, "all calls");
  all.addEventListener("click", () => change({ finding: -1 }));
  box.replaceChildren(pill(f.verdict), " ", el("code", null, named(f)), ` ${f.cause || f.reason} `, all);
}

function hashOf(s) {
  const p = [];
  if (s.finding >= 0) p.push(`finding=${s.finding}`);
  if (s.q) p.push(`q=${encodeURIComponent(s.q)}`);
  if (s.verdicts.size) p.push(`verdict=${[...s.verdicts].join(",")}`);
  if (s.sort) p.push(`sort=${s.sort}`);
  if (s.down) p.push("down=1");
  if (s.page) p.push(`page=${s.page + 1}`);
  return `#${p.join("&")}`;
}

function stateOf(hash) {
  const p = new URLSearchParams(hash.replace(/^#/, ""));
  const verdicts = (p.get("verdict") || "").split(",").filter((v) => v in KIND);
  const finding = parseInt(p.get("finding"), 10);
  return { q: p.get("q") || "", finding: finding in data.findings ? finding : -1, verdicts: new Set(verdicts), sort: p.get("sort") || WORST,
    down: p.get("down") === "1", page: Math.max(0, (parseInt(p.get("page"), 10) || 1) - 1) };
}

function change(what) {
  state = { ...state, page: 0, ...what };
  history.replaceState(null, "", hashOf(state));
  drawTable();
}

function sortBy(id) {
  if (state.sort !== id) change({ sort: id, down: false });
  else if (!state.down) change({ down: true });
  else change({ sort: WORST, down: false });
}

function drawTools() {
  byId("filter").addEventListener("input", (e) => change({ q: e.target.value.trim() }));
  for (const v of ORDER.filter((name) => data.summary.verdicts[name] > 0)) {
    const chip = el("button", { type: "button", class: `chip ${KIND[v]}`, "data-verdict": v, "aria-pressed": "false" },
      `${v} ${count(data.summary.verdicts[v])}`);
    chip.addEventListener("click", () => {
      const verdicts = new Set(state.verdicts);
      if (!verdicts.delete(v)) verdicts.add(v);
      change({ verdicts });
    });
    byId("chips").append(chip);
  }
  for (const column of COLUMNS) {
    const button = el("button", { type: "button" }, column.title);
    button.addEventListener("click", () => sortBy(column.id));
    byId("head").append(el("th", { scope: "col", "data-id": column.id, class: column.number ? "number" : null }, button));
  }
}

// ---- ways -----------------------------------------------------------------

let scrolled = 0;

function go() {
  const match = /^#call-(\d+)$/.exec(location.hash);
  byId("tip").hidden = true;
  const wasOpen = byId("overview").hidden;
  if (match && !wasOpen) scrolled = window.scrollY;
  byId("overview").hidden = match !== null;
  byId("call").hidden = match === null;
  if (match) {
    const c = calls.find((x) => x.call === Number(match[1]));
    const heading = c ? drawCall(c) : missing(match[1]);
    window.scrollTo(0, 0);
    heading.focus({ preventScroll: true });
    return;
  }
  state = stateOf(location.hash);
  byId("filter").value = state.q;
  document.title = `Ulpscope: ${data.run.device}`;
  drawTable();
  if (!step.picture) drawStep();
  if (wasOpen && !/^#finding=/.test(location.hash)) window.scrollTo(0, scrolled);
  else if (/^#(q|finding)=/.test(location.hash)) byId("calls").scrollIntoView();
}

function startCheck() {
  drawSummary();
  drawAccused();
  drawOperators();
  drawWords();
  drawAbout();
}

function start() {
  if (data.trace) startTrace();
  else startCheck();
  drawTools();
  window.addEventListener("hashchange", go);
  go();
}
