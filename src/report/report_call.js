// SPDX-License-Identifier: Apache-2.0
// The page of one call. What few calls have, numbers and worst elements, stands in an element
// of its own, #data-N, which is parsed when somebody opens call N.

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
  const W = window.innerWidth < 700 ? 640 : 960, H = 230, left = 46, right = 12, top = 34, bottom = 40;
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
    const fine = marks.length > 0 && b.low >= Math.max(...marks.map((m) => m[0]));
    const bar = svg("rect", { class: fine ? "bars fine" : "bars", x: x(b.low) + 0.5, width: Math.max(1, x(b.high) - x(b.low) - 1),
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

/* The outputs that were measured, the one that decided first. */
function outputsOf(c, details) {
  const found = [...new Set(details.metrics.map((m) => m.output).filter((i) => i >= 0))];
  const decided = (i) => (metricOf(details, i, "path") === c.output ? 0 : 1);
  return found.sort((x, y) => decided(x) - decided(y) || x - y);
}

function histogramCard(c, details, output) {
  const counts = metricOf(details, output, "score_histogram");
  if (counts === undefined) return null;
  const marks = [];
  const worst = metricOf(details, output, "t_max"), typical = metricOf(details, output, "t_mid");
  if (typeof typical === "number" && typical > 0) marks.push([24 - Math.log2(typical), "limit for the median"]);
  if (typeof worst === "number" && worst > 0) marks.push([24 - Math.log2(worst), "limit for the worst"]);
  const picture = histogram(binsOf(counts), marks, KIND[c.verdict]);
  return picture && el("div", { class: "card" },
    el("h2", null, "Error histogram of ", el("code", null, outputName(details, output))),
    el("div", { class: "plot" }, picture));
}

function effective(score) {
  if (typeof score !== "number") return number(score);
  const bits = 24 - Math.log2(Math.max(1, score));
  const roundings = score >= 1000 ? count(Number(score.toPrecision(3))) : rounded(score, 3);
  return `${roundings} roundings (${tenths(bits)} bits)`;
}

function examplesCard(details, output) {
  const found = details.examples.filter((e) => e.output === output);
  if (found.length === 0) return null;
  const rows = found.map((e) => [
    el("code", null, `${outputName(details, e.output)} ${JSON.stringify(e.index)}`), el("code", null, number(e.device)),
    el("code", null, number(e.reference)), el("code", null, number(e.yardstick)), effective(e.score)]);
  return el("div", { class: "card" }, el("h2", null, "Worst elements"),
    table([["Element"], ["Device", "number"], ["Correct", "number"], ["Float32", "number"], ["Error"]], rows));
}

/* What went in and came out, as the trace holds it: shapes alone do not file a bug. */
function argumentsCard(details) {
  const kept = metricOf(details, -1, "arguments");
  if (!Array.isArray(kept) || kept.length === 0) return null;
  const list_ = (value) => (Array.isArray(value) ? `[${value.join(", ")}]` : "-");
  const rows = kept.map((t) => {
    const s = t.stats || {};
    const [low, high] = s.min === undefined || s.min === null ? [s.int_min, s.int_max] : [s.min, s.max];
    const more = data.trace ? [rounded(s.mean, 4), rounded(s.l2, 4),
      t.writer > 0 && t.role === "in" ? el("a", { href: `#call-${t.writer}` }, `#${t.writer}`) : ""] : [];
    return [el("code", null, t.path), t.role, String(t.dtype).replace("torch.", ""), list_(t.sizes), list_(t.strides),
      number(t.offset), rounded(low, 4), rounded(high, 4),
      s.n_nan === undefined ? "-" : `${count(s.n_nan)} / ${count((s.n_pos_inf || 0) + (s.n_neg_inf || 0))}`, ...more];
  });
  const body = table([["Tensor"], ["Role"], ["Dtype"], ["Shape"], ["Strides"], ["Offset", "number"], ["Min", "number"],
    ["Max", "number"], ["NaN / Inf", "number"],
    ...(data.trace ? [["Mean", "number"], ["L2", "number"], ["Written by"]] : [])], rows);
  return el("details", { class: "card", open: rows.length <= 12 ? "" : null },
    el("summary", null, el("h2", null, "Tensors as captured")), body);
}

const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replace(/'/g, "'\\''")}'`);

/* The command that checks this call again. */
function commandOf(c) {
  const { run } = data;
  const [device, via] = run.device.split(" via ");
  const words = ["ulpscope", "check", quoted(`${run.trace}#${c.call}`), "--device", quoted(device)];
  if (via) words.push("--via", quoted(via));
  if (run.faults) words.push("--faults", quoted(run.faults));
  if (run.standard && run.standard !== "ulpscope") words.push("--standard", quoted(run.standard));
  for (const name of (run.options && run.options.import) || []) words.push("--import", quoted(name));
  return [...words, "-o", `call-${c.call}`].join(" ");
}

/* The command that writes this call as a script; null for devices that torch does not have. */
function scriptOf(c) {
  const [device, via] = data.run.device.split(" via ");
  if (via || device.startsWith("python:")) return null;
  const faults = data.run.faults ? [`ULPSCOPE_SIM_FAULTS=${quoted(data.run.faults)}`] : [];
  const words = [...faults, "ulpscope", "repro", quoted(`${data.run.trace}#${c.call}`), "--device", quoted(device)];
  for (const name of (data.run.options && data.run.options.import) || []) words.push("--import", quoted(name));
  return words.join(" ");
}

/* `text` may be a function: what nobody copies is not made. */
function copyButton(text, name = "copy", title = null) {
  const button = el("button", { type: "button", class: "chip dim", title }, name);
  const done = () => {
    button.textContent = "copied";
    setTimeout(() => { button.textContent = name; }, 1500);
  };
  button.addEventListener("click", () => {
    if (typeof text === "function") text = text();
    const old = () => { // where the page may not write the clipboard by itself
      const area = el("textarea", { "aria-hidden": "true" });
      area.value = text;
      document.body.append(area);
      area.select();
      if (document.execCommand("copy")) done();
      area.remove();
    };
    if (navigator.clipboard) navigator.clipboard.writeText(text).then(done, old);
    else old();
  });
  return button;
}

const COPY_MARKDOWN = ["copy Markdown", "the text of a bug report on this call: what, where, numbers, environment"];

/* Buttons that hand a finding on: the command that writes its worst call as a script, and the bug
   report on it, which stands among the numbers of that call. */
function handOn(f) {
  const c = { call: f.worst_call, op: f.op }, element = byId(`data-${f.worst_call}`);
  const script = data.run.trace && !c.op.startsWith("module:") ? scriptOf(c) : null;
  return el("div", { class: "chips hand" },
    script && copyButton(script, "copy repro", "the command that writes this call as a script for torch alone"),
    element && copyButton(() => JSON.parse(element.textContent).markdown, ...COPY_MARKDOWN));
}

function againCard(c) {
  if (!data.run.trace || c.op.startsWith("module:")) return null;
  const line = (title, text) => el("div", { class: "command" }, el("span", { class: "quiet" }, title),
    el("code", null, text), copyButton(text));
  return el("div", { class: "card" }, el("h2", null, "This call again"),
    line("check it", commandOf(c)),
    line("what went in", `ulpscope show ${quoted(`${data.run.trace}#${c.call}`)} --stats`),
    scriptOf(c) ? line("a script for torch alone", scriptOf(c)) : null);
}

function stackCard(details) {
  const frames = Array.isArray(details.stack) ? details.stack : [];
  if (frames.length === 0) return null;
  const items = frames.map((f) => el("li", null, el("code", null,
    Array.isArray(f) ? `${f[0]}:${f[1]}` : String(f)), Array.isArray(f) && f[2] ? ` in ${f[2]}` : "",
    Array.isArray(f) ? copyButton(`${f[0]}:${f[1]}`) : null));
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

/* [meaning, unit] of each metric; formulas in docs/reference/metrics.md. */
const METRICS = {
  max: ["error of the worst element", "roundings"], mid: ["error of the median element", "roundings"],
  q99: ["error of the 99th percentile", "roundings"], rel: ["median error relative to the values", "roundings"],
  z: ["tendency of the errors to one side", "standard deviations"], fan_in: ["inputs that one output depends on", ""],
  t_max: ["limit for the worst element", "roundings"], t_mid: ["limit for the median", "roundings"],
  n_mismatch: ["elements that are not correctly rounded", "elements"], n_bad: ["NaN or Inf out of place", "elements"],
  t_causes: ["time spent on the cause", "ns"], loss: ["effect on the loss, to first order", "loss"],
  nan_inputs: ["NaN among the inputs", "elements"], inf_inputs: ["Inf among the inputs", "elements"],
  sizes: ["shape", ""], excused: ["elements that differ and went free", "elements"], excuse: ["what excused them", ""],
  usual: ["no worse than torch's own CPU kernel", ""], reason: ["why it was not judged", ""],
};

function valueOf(m) {
  if (m.name === "t_causes" && typeof m.value === "number") return duration(m.value);
  const unit = (METRICS[m.name] || ["", ""])[1];
  if (Array.isArray(m.value)) return JSON.stringify(m.value);
  const value = Number.isInteger(m.value) ? count(m.value) : rounded(m.value, 4);
  return unit && typeof m.value === "number" ? `${value} ${unit}` : value;
}

function metricsCard(details) {
  const plain = details.metrics.filter((m) =>
    !["score_histogram", "path", "arguments"].includes(m.name) && !m.name.startsWith("standard:"));
  if (plain.length === 0) return null;
  return el("details", { class: "card", open: plain.length <= 24 ? "" : null }, el("summary", null, el("h2", null, "Metrics")),
    table([["Output"], ["Metric"], ["Value", "number"], ["Meaning"]], plain.map((m) => [
      el("code", null, outputName(details, m.output)), el("code", null, m.name), valueOf(m),
      el("span", { class: "quiet" }, (METRICS[m.name] || [""])[0])])));
}

function neighbours(c) {
  const at = shown.indexOf(c);
  const link = (to, text) => (to ? el("a", { href: `#call-${to.call}` }, text) : null);
  return el("span", null, link(shown[at - 1], "← previous"), at >= 0 ? link(shown[at + 1], "next →") : null);
}

function factsOf(c) {
  return list([["Call", `#${c.call} of ${data.run.trace}`], ["Step", `${c.step} ${c.phase}`],
    ["Module", place(c) + (c.module_class ? ` (${c.module_class})` : "")],
    ["Arguments", c.args && el("code", null, c.args)], ["Decided by", c.output && el("code", null, c.output)],
    ["Elements", c.n_elements ? count(c.n_elements) : ""], ["Cause", c.cause], ["Marked", markText(c)],
    ["Loss", typeof c.loss === "number" ? `±${lossText(c)}, to first order` : ""], ["Notes", c.notes],
    ["Self-test", caughtText(c)], ["Stands for", c.stands_for > 1 ? plural(c.stands_for, "call") : ""]]);
}

/* What one output shows; the page is about the one that decided, the others are folded. */
function outputCards(c, details) {
  const [first, ...others] = outputsOf(c, details);
  const cards = (i) => [histogramCard(c, details, i), examplesCard(details, i)].filter(Boolean);
  const shown_ = first === undefined ? [] : cards(first);
  const folded = others.map((i) => [i, cards(i)]).filter(([, found]) => found.length > 0);
  if (folded.length === 0) return shown_;
  return [...shown_, el("details", { class: "card" },
    el("summary", null, el("h2", null, `${plural(folded.length, "other output")} of this call`)),
    ...folded.flatMap(([, found]) => found))];
}

function drawCall(c) {
  if (data.trace) return drawTraceCall(c);
  const element = byId(`data-${c.call}`);
  const details = element ? JSON.parse(element.textContent) : { stack: [], metrics: [], examples: [] };
  const time = { device: c.t_device, reference: c.t_reference, perturbed: c.t_perturbed, judge: c.t_judge, total: c.t_total };
  const left_out = !element && c.verdict !== "pass"
    ? el("p", { class: "quiet" }, "This page holds the numbers of the worst calls; those of this one are in result.json.") : null;
  const heading = el("h1", { tabindex: "-1" }, el("code", null, named(c)));
  byId("call").replaceChildren(...[
    el("nav", { class: "crumbs", "aria-label": "Calls" }, el("a", { href: hashOf(state) }, "← All calls"), neighbours(c)),
    heading, el("p", { class: "lead" }, pill(c.verdict), " ", c.sentence || c.cause),
    details.markdown ? el("p", null, copyButton(details.markdown, ...COPY_MARKDOWN)) : null, left_out,
    el("div", { class: "columns" }, el("div", { class: "card" }, el("h2", null, "Call"), factsOf(c)),
      el("div", { class: "card" }, el("h2", null, "Effective bits"), bitsBar(c),
        el("p", { class: "quiet" }, "The bar is what the device computed with, of float32's 24; the mark is what float32 gives on the CPU."),
        el("h2", null, "Time"), timeBar(time, c.t_causes))),
    againCard(c), argumentsCard(details), ...outputCards(c, details),
    el("div", { class: "columns" }, ...[stackCard(details), standardsCard(details)].filter(Boolean)), metricsCard(details)].filter(Boolean));
  document.title = `#${c.call} ${named(c)} - Ulpscope`;
  return heading;
}

function missing(number_) {
  const heading = el("h1", { tabindex: "-1" }, `There is no call #${number_} here`);
  byId("call").replaceChildren(heading, el("a", { href: "#" }, "← All calls"));
  return heading;
}

