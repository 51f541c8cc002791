// SPDX-License-Identifier: Apache-2.0
// The page of a trace that nobody has checked: what is seen of each call without judging it. The
// picture, the table and the page of a call are those of a check. Of several ranks one is
// shown at a time, "?rank=1", with a way to the others.

// ---- calls ------------------------------------------------------------------

/* A call as a check's pages know one; a row of put_call in report_trace.c. */
function traceCall(row) {
  const c = { call: row[0], step: row[1], culprit: "", cause: "", notes: "", output: "", excuse: "", finding: -1, bits: null,
    yardstick_bits: null, loss: null, excused: null, opinions: "", n_elements: 0, stands_for: 1 };
  TRACE_TEXTS.forEach((name, i) => { c[name] = data.texts[row[2 + i]]; });
  TRACE_NUMBERS.forEach((name, i) => { c[name] = row[2 + TRACE_TEXTS.length + i]; });
  c.sentence = [c.results, rangeText(c), oddText(c)].filter(Boolean).join(", ");
  return c;
}

function rangeText(c) {
  return typeof c.min === "number" ? `${rounded(c.min, 4)} to ${rounded(c.max, 4)}` : "";
}

function oddText(c) {
  return [c.n_nan > 0 && `${count(c.n_nan)} NaN`, c.n_inf > 0 && `${count(c.n_inf)} Inf`].filter(Boolean).join(", ");
}

function largestOf(c) {
  return typeof c.min === "number" ? Math.max(Math.abs(c.min), Math.abs(c.max)) : -1;
}

/* What a check's data say beside its calls, as far as a trace has it. */
function traceSummary() {
  const verdicts = Object.fromEntries(ORDER.map((look) => [look, 0])), operators = new Map();
  for (const c of calls) {
    verdicts[c.verdict] = (verdicts[c.verdict] || 0) + 1;
    if (!operators.has(c.op)) operators.set(c.op, {});
    const of = operators.get(c.op);
    of[c.verdict] = (of[c.verdict] || 0) + 1;
  }
  const list_ = [...operators].map(([op, of]) => ({ op, verdicts: of }));
  const total = (o) => Object.values(o.verdicts).reduce((a, b) => a + b, 0);
  list_.sort((a, b) => total(b) - total(a) || (a.op < b.op ? -1 : 1));
  return { n_calls: calls.length, verdicts, operators: list_, standards: [] };
}

function traceColumns() {
  return [
    { id: "call", title: "Call", number: true, key: (c) => c.call },
    { id: "verdict", title: "Seen", key: (c) => ORDER.indexOf(c.verdict) },
    { id: "op", title: "Operator", key: named },
    { id: "module", title: "Module", key: place },
    { id: "step", title: "Step", key: (c) => `${String(c.step).padStart(12, "0")}${c.phase}` },
    { id: "results", title: "Results", key: (c) => c.results },
    { id: "range", title: "Range", key: (c) => -largestOf(c) },
    { id: "odd", title: "NaN, Inf", key: (c) => -(c.n_nan + c.n_inf) },
    { id: "args", title: "Arguments", key: (c) => c.args },
  ];
}

function traceRow(c) {
  const to = `#call-${c.call}`;
  return el("tr", null,
    el("td", { class: "number" }, el("a", { href: to }, `#${c.call}`)),
    el("td", null, pill(c.verdict)),
    el("td", { class: "op" }, el("a", { href: to }, el("code", null, c.op)), c.parent > 0 ? el("div", { class: "quiet" }, `inside #${c.parent}`) : null),
    el("td", { class: "module mono" }, dotted(place(c))),
    el("td", { class: "when" }, `${c.step} ${c.phase}`),
    el("td", { class: "module mono" }, c.results),
    el("td", { class: "when" }, rangeText(c)),
    el("td", { class: "when" }, oddText(c)),
    el("td", { class: "why mono" }, c.args));
}

// ---- the first page ---------------------------------------------------------

function rankChips() {
  if (data.ranks.length < 2) return null;
  const links = data.ranks.map((name, i) => el("a", { class: "chip dim", href: `?rank=${i}`, "aria-current": i === data.rank ? "page" : null },
    i === data.rank ? `${name} (shown)` : name));
  return el("p", { class: "chips" }, ...links);
}

function drawTraceSummary() {
  const { verdicts } = data.summary;
  const odd = (verdicts.born || 0) + (verdicts.carried || 0);
  byId("subtitle").textContent = data.path;
  const steps = new Set(calls.map((c) => c.step)), modules = new Set(calls.map((c) => c.module).filter(Boolean));
  const box = byId("summary");
  box.append(...[el("h1", { id: "summary-title" }, calls.length === 0 ? "The trace holds no call" : `${plural(calls.length, "call")} captured, none judged`),
    rankChips()].filter(Boolean));
  if (data.meta.complete === "0")
    box.append(el("p", { class: "notice" }, "The capture was cut short: calls behind its end are not here."));
  if (verdicts.born > 0)
    box.append(el("p", { class: "notice" }, `${plural(verdicts.born, "call")} made NaN or Inf of numbers, ` +
      `${count(verdicts.carried || 0)} carried some on. A mask makes -Inf on purpose.`));
  else box.append(el("p", { class: "quiet" }, odd > 0 ? "NaN or Inf came in from outside." : "No result holds NaN or Inf, as far as statistics were taken."));
  box.append(el("p", { class: "quiet" }, "Whether they are right: ", el("code", null, `ulpscope check ${quoted(data.path)} --device DEVICE`)));
  byId("sums").append(el("div", { class: "tiles" }, tile(count(calls.length), "calls"), tile(count(data.summary.operators.length), "operators"),
    tile(count(modules.size), "modules with calls"), tile(count(steps.size), steps.size === 1 ? "step" : "steps"), tile(count(odd), "with NaN or Inf")), shareBar(verdicts));
}

/* Modules in the order in which they ran first, each with what ran in it and below it. */
function drawModules() {
  const found = new Map();
  for (const c of calls) {
    const parts = c.module ? c.module.split(".") : [];
    for (let n = 1; n <= parts.length; n++) {
      const path = parts.slice(0, n).join(".");
      if (!found.has(path)) found.set(path, { path, depth: n - 1, n: 0, odd: 0, largest: -1, kind: "" });
      const m = found.get(path);
      m.n += 1;
      m.odd += c.n_nan + c.n_inf > 0 ? 1 : 0;
      m.largest = Math.max(m.largest, largestOf(c));
      if (n === parts.length && c.module_class) m.kind = c.module_class;
    }
  }
  if (found.size === 0) return;
  const rows = [...found.values()].map((m) => [
    el("a", { href: `#q=${encodeURIComponent(m.path)}`, style: `padding-left:${m.depth}em` }, dotted(m.path)), m.kind, count(m.n),
    m.largest >= 0 ? rounded(m.largest, 4) : "-", m.odd > 0 ? count(m.odd) : ""]);
  byId("accused").append(el("details", { class: "card", open: rows.length <= 24 ? "" : null },
    el("summary", null, el("h2", { id: "accused-title" }, plural(rows.length, "module"))),
    table([["Module"], ["Class"], ["Calls", "number"], ["Largest result", "number"], ["Calls with NaN, Inf", "number"]], rows.slice(0, 1000))));
}

function drawTraceAbout() {
  const words = [...ORDER.map((v) => [v, MEANS[v]]), ["order", "left to right is the order in which calls began; a trace has no clock"]];
  byId("words").append(el("details", { class: "card" }, el("summary", null, el("h2", { id: "words-title" }, "What the words mean")), list(words)));
  byId("about").append(el("h2", { id: "about-title" }, "About this trace"), el("div", { class: "card" },
    list([["Trace", data.path], ...pairsOf(data.meta).map(([k, v]) => [k.replace("_", " "), v]), ["Written by", `Ulpscope ${data.version}`]])));
}

function startTrace() {
  document.documentElement.classList.add("trace");
  drawTraceSummary();
  drawModules();
  drawOperators();
  drawTraceAbout();
}

// ---- one call ---------------------------------------------------------------

function traceFacts(c) {
  const at = (n) => el("a", { href: `#call-${n}` }, `#${n}`);
  return list([["Call", `#${c.call} of ${data.path}`], ["Step", `${c.step} ${c.phase}`], ["Module", place(c) + (c.module_class ? ` (${c.module_class})` : "")],
    ["Inside", c.parent > 0 ? at(c.parent) : ""], ["Arguments", c.args && el("code", null, c.args)], ["Results", c.results && el("code", null, c.results)],
    ["Range", rangeText(c)], ["NaN, Inf", oddText(c)], ["Status", c.status === "ok" ? "" : c.status]]);
}

function drawTraceCall(c) {
  const element = byId(`data-${data.rank}-${c.call}`);
  const details = element ? JSON.parse(element.textContent) : { stack: [], metrics: [], examples: [] };
  const line = (title, text) => el("div", { class: "command" }, el("span", { class: "quiet" }, title), el("code", null, text), copyButton(text));
  const name = quoted(`${data.path}#${c.call}`);
  const heading = el("h1", { tabindex: "-1" }, el("code", null, c.op));
  byId("call").replaceChildren(...[
    el("nav", { class: "crumbs", "aria-label": "Calls" }, el("a", { href: hashOf(state) }, "← All calls"), neighbours(c)),
    heading, el("p", { class: "lead" }, pill(c.verdict), " ", c.sentence), el("div", { class: "card" }, el("h2", null, "Call"), traceFacts(c)),
    element ? null : el("p", { class: "quiet" }, "This page holds the tensors of the first calls; those of this one: ulpscope show."),
    el("div", { class: "card" }, el("h2", null, "This call"), line("whether it is right", `ulpscope check ${name} --device DEVICE`),
      line("all that is known of it", `ulpscope show ${name}`)),
    argumentsCard(details), stackCard(details)].filter(Boolean));
  document.title = `#${c.call} ${c.op} - Ulpscope`;
  return heading;
}
