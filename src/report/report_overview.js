// SPDX-License-Identifier: Apache-2.0
// The first page but the picture and the table: what was found, what was not judged, sums.

const CARDS = 200; // more findings than this are found in the table alone

// ---- overview -------------------------------------------------------------

const tile = (value, name) => el("div", { class: "card tile" }, el("b", null, value), el("span", null, name));

function shareBar(verdicts) {
  const bar = el("div", { class: "share", "aria-hidden": "true" });
  for (const v of ORDER)
    if (verdicts[v] > 0) bar.append(el("i", { class: `${KIND[v]} fill`, style: `flex:${verdicts[v]}` }));
  return bar;
}

/* What a reader must know before the first number. */
function banners() {
  const { run, summary } = data;
  const missing = summary.verdicts.unjudged + summary.verdicts.unsupported;
  const told = [];
  if (run.faults) told.push(`Faults were planted on purpose: ${run.faults}`);
  if (run.standard && run.standard !== "ulpscope") told.push(`Judged by another standard: ${run.standard}`);
  if (run.remarks) told.push(...run.remarks.split("\n"));
  if (summary.n_known + summary.n_allowed > 0)
    told.push([summary.n_known && `${plural(summary.n_known, "call")} known from the baseline`,
      summary.n_allowed && `${plural(summary.n_allowed, "call")} allowed by --allow`].filter(Boolean).join(", ") +
      ": accused here, and no reason to fail.");
  if (missing > 0.03 * summary.n_calls)
    told.push(`${count(missing)} of ${plural(summary.n_calls, "call")} could not be judged: that the others pass says nothing of them.`);
  if (summary.excused.n_calls > 0)
    told.push(`Of ${plural(summary.excused.n_calls, "call")} more than 3 % of an output was excused, ` +
      `at most ${Math.round(100 * summary.excused.most)} % (${summary.excused.excuse}).`);
  return told;
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
  for (const text of banners()) box.append(el("p", { class: "notice" }, text));
  if (run.state === "running" || run.state === "budget")
    box.append(el("p", { class: "notice" }, (run.state === "running" ? "The check was interrupted: "
      : "Incomplete, the budget was spent: ") + `${count(summary.n_calls)} calls have a verdict` +
      (run.n_selected ? ` of ${count(Number(run.n_selected))} selected.` : ".")));
  const odd = summary.odd_inputs;
  if (odd && odd.n_calls > 0) // -Inf of a mask is as it should be
    box.append(el("p", { class: odd.n_nan_pass > 0 ? "notice" : "quiet" }, `${plural(odd.n_calls, "call")} had NaN or Inf among the inputs ` +
      `(${count(odd.n_nan)} NaN), ${count(odd.n_pass)} of them pass: where the truth is NaN or Inf, no number is compared.`));
  const passed = summary.verdicts.pass;
  if (summary.n_calls > 0)
    box.append(el("p", { class: "quiet" }, `${count(passed)} of ${plural(summary.n_calls, "call")} ` +
      `${passed === 1 ? "passes" : "pass"}: no less accurate than float32 may be, by the standard "${run.standard}".`));
  byId("sums").append(el("div", { class: "tiles" },
    tile(count(summary.n_calls), summary.stands_for > summary.n_calls
      ? `calls checked, for ${count(summary.stands_for)}` : "calls checked"),
    tile(count(accused), "accused"),
    tile(count(summary.operators.length), "operators"),
    tile(count(summary.verdicts.unjudged + summary.verdicts.unsupported), "not judged"),
    tile(count(summary.verdicts.undefined), "undefined"),
    tile(duration(summary.time_ns.total), "in workers")), shareBar(summary.verdicts));
}

function findingCard(f, i) {
  const link = el("a", { href: `#call-${f.worst_call}`, title: "the worst of these calls" }, el("code", null, named(f)));
  const all = el("a", { href: `#finding=${i}`, title: "these calls in the table" }, plural(f.stands_for, "call"));
  const marks = markText({ known: f.n_known > 0 && f.n_known === f.n_calls, allowed: f.allowed, usual: f.usual, excused: 0 });
  return el("div", { class: `card finding ${KIND[f.verdict] || "dim"}` },
    el("h3", null, pill(f.verdict), link, all,
      marks && el("span", { class: "quiet" }, marks)),
    el("p", { class: "sentence" }, f.sentence || f.cause),
    el("p", { class: "places quiet mono" }, f.modules),
    el("div", { class: "side" }, bitsBar(f), typeof f.loss === "number" ? el("span", { class: "quiet" }, `loss ±${lossText(f)}`) : null,
      handOn(f)));
}

function drawAccused() {
  const box = byId("accused");
  const found = data.findings.map((f, i) => [f, i]).filter(([f]) => ACCUSED.has(f.verdict) || f.verdict === "undefined");
  box.append(el("h2", { id: "accused-title" }, "What was found"));
  if (found.length === 0) box.append(el("p", { class: "card" }, "No call is accused."));
  else box.append(el("div", { class: "findings" }, ...found.slice(0, CARDS).map(([f, i]) => findingCard(f, i))));
  if (found.length > CARDS)
    box.append(el("p", { class: "quiet" }, `${count(data.n_findings)} findings in all; the table of calls has every one.`));
}

function drawReasons(box) {
  const open = data.findings.filter((f) => ["internal", "unjudged", "unsupported"].includes(f.verdict));
  if (open.length === 0) return;
  box.append(el("div", { class: "card" }, el("h3", null, "Not judged, and why"),
    table([["Verdict"], ["Operator"], ["Calls", "number"], ["Reason"]],
      open.slice(0, CARDS).map((f) => [pill(f.verdict), el("code", null, f.op),
        el("a", { href: `#finding=${data.findings.indexOf(f)}` }, count(f.n_calls)), f.reason]))));
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
  if (rows.length === 0) return;
  byId("operators").append(el("details", { class: "card", open: rows.length <= 12 ? "" : null },
    el("summary", null, el("h2", { id: "operators-title" }, `${plural(rows.length, "operator")}`)),
    table([["Operator"], ["Calls", "number"], ["Verdicts"]], rows.slice(0, 1000))));
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
    ["Begun", run.created], ["Wall time", run.seconds ? duration(Number(run.seconds) * 1e9) : ""],
    ["Written by", `Ulpscope ${data.version}`]]));
  const time = el("div", { class: "card" }, el("h3", null, "Time"), timeBar(data.summary.time_ns, data.summary.time_ns.causes));
  const where = el("div", { class: "card" }, el("h3", null, "Environment"), list(pairsOf(run.environment)));
  const left = el("div", { class: "findings" }, facts, time);
  box.append(el("div", { class: "columns" }, left, where));
  const more = el("div", { class: "findings", style: "margin-top:.8rem" });
  drawReasons(more);
  more.append(...[drawStandards(), drawSelfTest()].filter(Boolean));
  box.append(more);
}


/* The words of this page, for whoever reads one for the first time. */
function drawWords() {
  const words = [
    ["effective bits", "how wide the arithmetic inside seems to be: 24 is float32, about 11 TF32 or float16, about 8 bfloat16"],
    ["11.1 / 23.8", "effective bits on the device / those of float32 as the CPU computes it, on the same inputs"],
    ["≥ 17.4", "the output's dtype shows no more: it may well be better"],
    ["rounding", "one float32 rounding (2^-24) of the element, of what it reacts to, or of what float32 loses there, whichever is largest"],
    ["loss ±", "how far the error of this one call moves the loss of the captured step, to first order"],
    ["excused", "elements that differ and went free, for a reason that has a name and a limit"],
    ["usual", "the device is no worse than torch's own CPU kernel of that dtype"],
    ["known, allowed", "accused, but in the baseline (--baseline), or named by --allow: the exit code leaves them out"],
    ...ORDER.map((v) => [v, MEANS[v]])];
  byId("words").append(el("details", { class: "card" },
    el("summary", null, el("h2", { id: "words-title" }, "What the words mean")), list(words),
    el("p", { class: "quiet" }, "The rule: docs/background/verdict.md. Formulas: docs/reference/metrics.md. This page and the files beside it: docs/reference/report.md.")));
}
