// SPDX-License-Identifier: Apache-2.0
// Shows the data that report_html.c embedded: #data for the lists, #data-N for call N.
// All text goes through textContent: names come from the user's model. The state of the
// page is its hash: "#call-12", or "#q=softmax&verdict=wrong,reduced&sort=bits&page=2".
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const calls = data.calls;
  const PAGE = 100;
  const KIND = {
    crashed: "bad", timeout: "bad", nonfinite: "bad", wrong: "bad", reduced: "warn",
    intermittent: "warn", undefined: "dim", unjudged: "dim", unsupported: "dim", pass: "good",
  };
  const ORDER = Object.keys(KIND);
  const ACCUSED = new Set(ORDER.slice(0, 6));
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

  const pill = (verdict) => el("span", { class: `pill ${KIND[verdict] || "dim"}` }, verdict);

  /* Bits with one digit as the sentence has them: a quarter goes to the even digit below. */
  function tenths(bits) {
    const shown = Math.max(0, bits);
    return ((4 * shown) % 4 === 1 ? Math.floor(10 * shown) / 10 : shown).toFixed(1);
  }

  /* Effective bits as text and as a bar of 24; the tick is the yardstick's. */
  function bitsBar(c) {
    if (typeof c.bits !== "number") return el("span", { class: "quiet" }, "-");
    const part = (bits) => `${Math.min(100, Math.max(0, (100 * bits) / 24))}%`;
    const known = typeof c.yardstick_bits === "number";
    const text = `${c.bound ? "≥ " : ""}${tenths(c.bits)}` + (known ? ` / ${tenths(c.yardstick_bits)}` : "");
    const track = el("span", { class: "track", "aria-hidden": "true" },
      el("i", { style: `width:${part(c.bits)}` }));
    if (known) track.append(el("u", { style: `left:calc(${part(c.yardstick_bits)} - 2px)` }));
    return el("span", { class: `bits ${KIND[c.verdict] || "dim"}`,
      title: "effective bits on the device / those of honest float32" },
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

  const accusers = (c) => Object.entries(c.standards || {}).filter(([, v]) => v === "wrong").map(([name]) => name);

  function opinions(c) {
    const names = accusers(c);
    const judged = Object.values(c.standards || {}).filter((v) => v !== "unjudged").length;
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

  const causesTime = (details) => details.metrics.find((m) => m.name === "t_causes")?.value ?? 0;

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

  // ---- overview -------------------------------------------------------------

  const tile = (value, name) => el("div", { class: "card tile" }, el("b", null, value), el("span", null, name));

  function shareBar(verdicts) {
    const bar = el("div", { class: "share", "aria-hidden": "true" });
    for (const v of ORDER)
      if (verdicts[v] > 0) bar.append(el("i", { class: `${KIND[v]} fill`, style: `flex:${verdicts[v]}` }));
    return bar;
  }

  function drawSummary() {
    const { run, summary } = data;
    const accused = ORDER.filter((v) => ACCUSED.has(v)).reduce((n, v) => n + summary.verdicts[v], 0);
    const title = summary.n_calls === 0 ? "Nothing was checked"
      : accused === 0 ? `No call is accused on ${run.device}`
        : `${count(accused)} of ${plural(summary.n_calls, "call")} accused on ${run.device}`;
    byId("subtitle").textContent = `${run.trace} on ${run.device}`;
    const box = byId("summary");
    box.append(el("h1", { id: "summary-title" }, title));
    if (run.state === "running" || run.state === "budget")
      box.append(el("p", { class: "notice" }, (run.state === "running" ? "The check was interrupted: "
        : "Incomplete, the budget was spent: ") + `${count(summary.n_calls)} calls have a verdict` +
        (run.n_selected ? ` of ${count(Number(run.n_selected))} selected.` : ".")));
    const odd = summary.odd_inputs;
    if (odd && odd.n_calls > 0)
      box.append(el("p", { class: "notice" }, `${plural(odd.n_calls, "call")} had NaN or Inf among the inputs ` +
        `(${count(odd.n_nan)} NaN), ${count(odd.n_pass)} of them pass: where the truth is NaN or Inf, no number is compared.`));
    const passed = summary.verdicts.pass;
    if (summary.n_calls > 0)
      box.append(el("p", { class: "quiet" }, `${count(passed)} of ${plural(summary.n_calls, "call")} ` +
        `${passed === 1 ? "passes" : "pass"}: no less accurate than honest float32, by the standard "${run.standard}".`));
    box.append(el("div", { class: "tiles" },
      tile(count(summary.n_calls), summary.stands_for > summary.n_calls
        ? `calls checked, for ${count(summary.stands_for)}` : "calls checked"),
      tile(count(accused), "accused"),
      tile(count(summary.operators.length), "operators"),
      tile(count(summary.verdicts.unjudged + summary.verdicts.unsupported), "not judged"),
      tile(duration(summary.time_ns.total), "in workers")), shareBar(summary.verdicts));
  }

  function findingCard(f) {
    const link = el("a", { href: `#call-${f.worst_call}` }, el("code", null, named(f)));
    return el("div", { class: `card finding ${KIND[f.verdict] || "dim"}` },
      el("h3", null, pill(f.verdict), link, el("span", { class: "quiet" }, plural(f.stands_for, "call"))),
      el("p", { class: "sentence" }, f.sentence || f.cause),
      el("p", { class: "places quiet mono" }, f.modules),
      el("div", { class: "side" }, bitsBar(f), typeof f.loss === "number" ? el("span", { class: "quiet" }, `loss ±${lossText(f)}`) : null));
  }

  function drawAccused() {
    const box = byId("accused");
    const found = data.findings.filter((f) => ACCUSED.has(f.verdict) || f.verdict === "undefined");
    box.append(el("h2", { id: "accused-title" }, "What was found"));
    if (found.length === 0) box.append(el("p", { class: "card" }, "No call is accused."));
    else box.append(el("div", { class: "findings" }, ...found.map(findingCard)));
  }

  function drawReasons(box) {
    const open = data.findings.filter((f) => f.verdict === "unjudged" || f.verdict === "unsupported");
    if (open.length === 0) return;
    box.append(el("div", { class: "card" }, el("h3", null, "Not judged, and why"),
      table([["Verdict"], ["Operator"], ["Calls", "number"], ["Reason"]],
        open.map((f) => [pill(f.verdict), el("code", null, f.op), count(f.n_calls), f.reason]))));
  }

  function pairsOf(object) {
    if (object === null || typeof object !== "object") return [["", String(object)]];
    return Object.entries(object).map(([k, v]) =>
      [k, v !== null && typeof v === "object" ? JSON.stringify(v) : String(v)]);
  }

  function drawOperators() {
    const rows = data.summary.operators.map((o) => {
      const total = Object.values(o.verdicts).reduce((a, b) => a + b, 0);
      const pills = el("span", { class: "chips" });
      for (const v of ORDER) if (o.verdicts[v]) pills.append(el("span", { class: `pill ${KIND[v]}` }, `${o.verdicts[v]} ${v}`));
      const link = el("a", { href: `#q=${encodeURIComponent(o.op)}` }, el("code", null, o.op));
      return [link, count(total), pills];
    });
    return el("div", { class: "card" }, el("h3", null, "Operators"),
      table([["Operator"], ["Calls", "number"], ["Verdicts"]], rows));
  }

  function drawSelfTest() {
    const ops = Object.keys(probes);
    if (ops.length === 0) return null;
    const passing = Object.fromEntries(data.summary.operators.map((o) => [o.op, o.verdicts.pass || 0]));
    const rows = ops.map((op) => {
      const { bits, skipped, caught = [], unseen = [] } = probes[op];
      const sizes = bits ? [least(bits.noise), least(bits.element), least(bits.factor)] : ["-", "-", "-"];
      const mistakes = bits ? `${caught.length} of ${caught.length + unseen.length}` : "";
      return [el("code", null, op), count(passing[op] || 0), ...sizes, mistakes,
        bits ? unseen.join("; ") : skipped];
    });
    return el("div", { class: "card" }, el("h3", null, "Self-test: the smallest relative error that a pass excludes"),
      table([["Operator"], ["Pass", "number"], ["In all elements", "number"], ["In one", "number"],
        ["A factor", "number"], ["Mistakes caught", "number"], ["Not noticed"]], rows));
  }

  function drawStandards() {
    const said = data.summary.standards;
    if (said.length < 2) return null;
    const link = (s) => el("a", { href: `#q=${encodeURIComponent(`accused by ${s.name}`)}` }, el("code", null, s.name));
    return el("div", { class: "card" }, el("h3", null, "Other standards"),
      el("p", { class: "quiet" }, "Misses: calls accused here that the standard passes. Extra: calls that it accuses and that pass here."),
      table([["Standard"], ["Accuses", "number"], ["Misses", "number"], ["Extra", "number"], ["Unjudged", "number"]],
        said.map((s) => [link(s), count(s.accuses), count(s.misses), count(s.extra), count(s.unjudged)])));
  }

  function drawAbout() {
    const { run } = data;
    const box = byId("about");
    box.append(el("h2", { id: "about-title" }, "About this run"));
    const facts = el("div", { class: "card" }, el("h3", null, "Run"), list([
      ["Device", run.device], ["Trace", run.trace], ["Trace id", run.trace_id],
      ["Standard", run.standard], ["Planted faults", run.faults],
      ...pairsOf(run.options).map(([k, v]) => [`Option ${k}`, v === "null" ? "" : v]),
      ["Wall time", run.seconds ? duration(Number(run.seconds) * 1e9) : ""],
      ["Written by", `Ulpscope ${data.version}`]]));
    const time = el("div", { class: "card" }, el("h3", null, "Time"), timeBar(data.summary.time_ns, data.summary.time_ns.causes));
    const where = el("div", { class: "card" }, el("h3", null, "Environment"), list(pairsOf(run.environment)));
    const left = el("div", { class: "findings" }, facts, time);
    box.append(el("div", { class: "columns" }, left, where));
    const more = el("div", { class: "findings", style: "margin-top:.8rem" });
    drawReasons(more);
    more.append(...[drawStandards(), drawSelfTest(), drawOperators()].filter(Boolean));
    box.append(more);
  }

  // ---- the table ------------------------------------------------------------

  const COLUMNS = [
    { id: "call", title: "Call", number: true, key: (c) => c.call },
    { id: "verdict", title: "Verdict", key: (c) => ORDER.indexOf(c.verdict) },
    { id: "op", title: "Operator", key: named },
    { id: "module", title: "Module", key: place },
    { id: "step", title: "Step", key: (c) => `${String(c.step).padStart(12, "0")}${c.phase}` },
    { id: "bits", title: "Bits / float32", key: (c) => (typeof c.bits === "number" ? c.bits : Infinity) },
    { id: "loss", title: "Loss ±", number: true, key: (c) => (typeof c.loss === "number" ? -c.loss : Infinity) },
    { id: "standards", title: "Accused by", key: (c) => -accusers(c).length },
    { id: "sentence", title: "Why", key: (c) => c.sentence },
  ].filter((c) => c.id !== "standards" || data.summary.standards.length > 1);
  const WORST = "";
  let state = { q: "", verdicts: new Set(), sort: WORST, down: false, page: 0 };
  let shown = calls;

  for (const c of calls)
    c.haystack = [c.op, c.culprit, c.module, place(c), c.verdict, c.phase, c.cause, c.sentence, `#${c.call}`,
      ...accusers(c).map((name) => `accused by ${name}`)].join("\n").toLowerCase();

  function choose() {
    const words = state.q.toLowerCase().split(/\s+/).filter(Boolean);
    shown = calls.filter((c) => (state.verdicts.size === 0 || state.verdicts.has(c.verdict)) &&
      words.every((w) => c.haystack.includes(w)));
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
      el("td", null, pill(c.verdict)),
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
    for (const chip of byId("chips").children)
      chip.setAttribute("aria-pressed", String(state.verdicts.has(chip.dataset.verdict)));
    byId("count").textContent = shown.length === calls.length ? plural(calls.length, "call")
      : `${count(shown.length)} of ${plural(calls.length, "call")}`;
    const from = state.page * PAGE;
    byId("rows").replaceChildren(...shown.slice(from, from + PAGE).map(tableRow));
  }

  function hashOf(s) {
    const p = [];
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
    return { q: p.get("q") || "", verdicts: new Set(verdicts), sort: p.get("sort") || WORST,
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

  // ---- one call -------------------------------------------------------------

  /* Bin i > 0 of the judge holds scores from 2^((i-1)/4 - 8): bits are 24 - log2(score). */
  const bitsOfBin = (i) => 24 - ((i - 1) / 4 - 8);

  function histogram(counts, marks, kind) {
    const bins = [];
    for (let i = 0; i < counts.length; i += 2) // half octaves are wide enough to see
      bins.push({ low: bitsOfBin(i + 2), high: bitsOfBin(i), n: counts[i] + (counts[i + 1] || 0) });
    const used = bins.filter((b) => b.n > 0);
    if (used.length === 0) return null;
    const places = [...used.flatMap((b) => [b.low, b.high]), ...marks.map((m) => m[0]), 24];
    const low = Math.floor(Math.min(...places)) - 1, high = Math.ceil(Math.max(...places)) + 1;
    const W = 640, H = 230, left = 46, right = 12, top = 34, bottom = 40;
    const x = (bits) => left + ((bits - low) / (high - low)) * (W - left - right);
    const most = Math.max(...used.map((b) => b.n));
    const y = (n) => H - bottom - (Math.log10(n + 1) / Math.log10(most + 1)) * (H - top - bottom);
    const total = used.reduce((n, b) => n + b.n, 0);
    const root = svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", class: kind, "aria-label":
      `Histogram of ${total} inexact elements over effective bits, from ${used[used.length - 1].low} to ${used[0].high}` });
    for (let n = 1; n <= most; n *= 10) {
      root.append(svg("line", { class: "axis", x1: left, x2: W - right, y1: y(n), y2: y(n) }));
      root.append(svg("text", { x: left - 6, y: y(n) + 4, "text-anchor": "end" }, count(n)));
    }
    const step = high - low > 24 ? 4 : 2;
    for (let b = Math.ceil(low / step) * step; b <= high; b += step)
      root.append(svg("text", { x: x(b), y: H - bottom + 16, "text-anchor": "middle" }, b));
    for (const b of used) {
      const bar = svg("rect", { class: "bars", x: x(b.low) + 0.5, width: Math.max(1, x(b.high) - x(b.low) - 1),
        y: y(b.n), height: H - bottom - y(b.n) });
      bar.append(svg("title", {}, `${b.low} to ${b.high} bits: ${plural(b.n, "element")}`));
      root.append(bar);
    }
    marks.forEach(([bits, text], i) => {
      root.append(svg("line", { class: "mark", x1: x(bits), x2: x(bits), y1: 16 + (i % 2) * 13, y2: H - bottom }));
      const end = x(bits) > W * (i === 0 ? 0.75 : 0.25); // away from each other
      root.append(svg("text", { x: x(bits) + (end ? -4 : 4), y: 14 + (i % 2) * 13, "text-anchor": end ? "end" : "start" }, text));
    });
    root.append(svg("text", { x: (left + W) / 2, y: H - 6, "text-anchor": "middle" },
      "effective bits of each inexact element (left is worse)"));
    return root;
  }

  const metricOf = (details, output, name) =>
    (details.metrics.find((m) => m.output === output && m.name === name) || {}).value;

  function outputName(details, output) {
    return output < 0 ? "the call" : metricOf(details, output, "path") || `output ${output}`;
  }

  /* [bin, count] pairs are allowed beside the plain list. */
  function binsOf(value) {
    if (!Array.isArray(value) || !Array.isArray(value[0])) return Array.isArray(value) ? value : [];
    const counts = new Array(160).fill(0);
    for (const [i, n] of value) counts[i] = n;
    return counts;
  }

  function histogramCards(c, details) {
    return details.metrics.filter((m) => m.name === "score_histogram").map((m) => {
      const marks = [];
      const worst = metricOf(details, m.output, "t_max"), typical = metricOf(details, m.output, "t_mid");
      if (typeof typical === "number" && typical > 0) marks.push([24 - Math.log2(typical), "limit for the median"]);
      if (typeof worst === "number" && worst > 0) marks.push([24 - Math.log2(worst), "limit for the worst"]);
      const picture = histogram(binsOf(m.value), marks, KIND[c.verdict]);
      return picture && el("div", { class: "card" },
        el("h2", null, "Error histogram of ", el("code", null, outputName(details, m.output))),
        el("div", { class: "plot" }, picture));
    });
  }

  function effective(score) {
    if (typeof score !== "number") return number(score);
    const bits = 24 - Math.log2(Math.max(1, score));
    const roundings = score >= 1000 ? count(Number(score.toPrecision(3))) : rounded(score, 3);
    return `${roundings} roundings (${tenths(bits)} bits)`;
  }

  function examplesCard(details) {
    if (details.examples.length === 0) return null;
    const rows = details.examples.map((e) => [
      el("code", null, `${outputName(details, e.output)} ${JSON.stringify(e.index)}`), el("code", null, number(e.device)),
      el("code", null, number(e.reference)), el("code", null, number(e.yardstick)), effective(e.score)]);
    return el("div", { class: "card" }, el("h2", null, "Worst elements"),
      table([["Element"], ["Device", "number"], ["Correct", "number"], ["Float32", "number"], ["Error"]], rows));
  }

  function stackCard(details) {
    const frames = Array.isArray(details.stack) ? details.stack : [];
    if (frames.length === 0) return null;
    const items = frames.map((f) => el("li", null, el("code", null,
      Array.isArray(f) ? `${f[0]}:${f[1]}` : String(f)), Array.isArray(f) && f[2] ? ` in ${f[2]}` : ""));
    return el("div", { class: "card" }, el("h2", null, "Stack, innermost first"), el("ol", { class: "stack" }, ...items));
  }

  function standardsCard(details) {
    const said = details.metrics.filter((m) => m.name.startsWith("standard:") && m.value);
    if (said.length === 0) return null;
    return el("div", { class: "card" }, el("h2", null, "Other standards"),
      table([["Standard"], ["Verdict"], ["Status"], ["Reason"]], said.map((m) => [
        el("code", null, m.name.slice("standard:".length)), m.value.verdict, m.value.status,
        m.value.reason + (m.value.stand_in ? ` (${m.value.stand_in})` : "")])));
  }

  function metricsCard(details) {
    const plain = details.metrics.filter((m) =>
      !["score_histogram", "path"].includes(m.name) && !m.name.startsWith("standard:"));
    if (plain.length === 0) return null;
    return el("div", { class: "card" }, el("h2", null, "Metrics"),
      table([["Output"], ["Metric"], ["Value", "number"]], plain.map((m) => [
        el("code", null, outputName(details, m.output)), el("code", null, m.name),
        Array.isArray(m.value) ? JSON.stringify(m.value) : rounded(m.value, 6)])));
  }

  function neighbours(c) {
    const at = shown.indexOf(c);
    const link = (to, text) => (to ? el("a", { href: `#call-${to.call}` }, text) : null);
    return el("span", null, link(shown[at - 1], "← previous"), at >= 0 ? link(shown[at + 1], "next →") : null);
  }

  function drawCall(c) {
    const details = JSON.parse(byId(`data-${c.call}`).textContent);
    const facts = list([["Call", `#${c.call} of ${data.run.trace}`], ["Step", `${c.step} ${c.phase}`],
      ["Module", place(c) + (details.module_class ? ` (${details.module_class})` : "")],
      ["Arguments", el("code", null, details.args)], ["Decided by", details.output && el("code", null, details.output)],
      ["Elements", details.n_elements ? count(details.n_elements) : ""], ["Cause", c.cause],
      ["Loss", typeof c.loss === "number" ? `±${lossText(c)}, to first order` : ""], ["Notes", details.notes],
      ["Self-test", caughtText(c)],
      ["Stands for", details.stands_for > 1 ? plural(details.stands_for, "call") : ""]]);
    const heading = el("h1", { tabindex: "-1" }, el("code", null, named(c)));
    const box = byId("call");
    box.replaceChildren(
      el("nav", { class: "crumbs", "aria-label": "Calls" }, el("a", { href: hashOf(state) }, "← All calls"), neighbours(c)),
      heading, el("p", { class: "lead" }, pill(c.verdict), " ", c.sentence || c.cause),
      el("div", { class: "columns" }, el("div", { class: "card" }, el("h2", null, "Call"), facts),
        el("div", { class: "card" }, el("h2", null, "Effective bits"), bitsBar(c),
          el("p", { class: "quiet" }, "The bar is what the device computed with, of float32's 24; the mark is what honest float32 gives."),
          el("h2", null, "Time"), timeBar(details.time_ns, causesTime(details)))),
      ...[...histogramCards(c, details), examplesCard(details)].filter(Boolean),
      el("div", { class: "columns" }, ...[stackCard(details), standardsCard(details), metricsCard(details)].filter(Boolean)));
    document.title = `#${c.call} ${named(c)} - Ulpscope`;
    return heading;
  }

  function missing(number_) {
    const heading = el("h1", { tabindex: "-1" }, `There is no call #${number_} here`);
    byId("call").replaceChildren(heading, el("a", { href: "#" }, "← All calls"));
    return heading;
  }

  // ---- ways -----------------------------------------------------------------

  let scrolled = 0;

  function go() {
    const match = /^#call-(\d+)$/.exec(location.hash);
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
    if (wasOpen) window.scrollTo(0, scrolled);
    else if (location.hash.startsWith("#q=")) byId("calls").scrollIntoView();
  }

  drawSummary();
  drawAccused();
  drawAbout();
  drawTools();
  window.addEventListener("hashchange", go);
  go();
})();
