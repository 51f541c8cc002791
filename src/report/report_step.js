// SPDX-License-Identifier: Apache-2.0
// One picture of the step: every call in the order of execution, a lane for forward, backward
// and optimizer each, the module tree above its calls. An accused call is the darker the more
// bits it lost; what was not judged is hatched, what was excused is dotted, so that neither
// looks like a pass without colours either. Where calls are thinner than a column, a column
// shows the share of each kind, the worst on top and never too thin to see.

const LANES = ["forward", "backward", "optimizer"];
const COLUMN = 2, CELL = 34, WIDEST = 26, SPAN = 16;
const LOST = [4, 8, 14, 18]; // bits lost, where the next colour begins: TF32 loses 13, bfloat16 16

/* Which look a call has: dead, l5 to l1 by bits lost, open (not judged), free, pass. */
function lookOf(c) {
  if (data.trace) return { born: "dead", raised: "l5", carried: "l3", unfinished: "open" }[c.verdict] || "pass";
  if (c.verdict === "crashed" || c.verdict === "timeout" || c.verdict === "nonfinite") return "dead";
  if (["internal", "unjudged", "unsupported"].includes(c.verdict)) return "open";
  if (c.verdict === "undefined") return "free";
  if (c.verdict === "pass") return c.excused > MUCH ? "free" : "pass";
  if (typeof c.bits !== "number") return "l5";
  const full = typeof c.yardstick_bits === "number" ? c.yardstick_bits : 24;
  return `l${1 + LOST.filter((limit) => full - c.bits >= limit).length}`;
}

const LOOKS = ["dead", "l5", "l4", "l3", "l2", "l1", "free", "open", "pass"]; // the worst first
const isBad = (look) => LOOKS.indexOf(look) < 6;

/* Parts of a module path; a number belongs to the list that it counts in. */
function partsOf(c, steps) {
  const parts = steps > 1 ? [`step ${c.step}`] : [];
  for (const part of c.module ? c.module.split(".") : [])
    if (/^\d+$/.test(part) && parts.length > (steps > 1 ? 1 : 0)) parts[parts.length - 1] += `.${part}`;
    else parts.push(part);
  return parts;
}

const inside = (c, module) => !module || c.module === module || c.module.startsWith(`${module}.`);

/* Lanes with their calls in order; every call gets its look and its path. */
function lanesOf(all, module) {
  const steps = new Set(all.map((c) => c.step)).size;
  const phases = new Map(LANES.map((name) => [name, []]));
  for (const c of all.filter((x) => inside(x, module)).sort((a, b) => a.call - b.call)) {
    c.look = lookOf(c);
    c.parts = partsOf(c, steps);
    if (!phases.has(c.phase)) phases.set(c.phase, []);
    phases.get(c.phase).push(c);
  }
  return [...phases].filter(([, calls_]) => calls_.length > 0)
    .map(([phase, calls_]) => ({ phase: phase || "no phase", calls: calls_ }));
}

/* Runs of calls inside one module, at a depth of the tree. A few calls of no module, as the
 * backward has them between others, part none. */
function spansOf(lane, depth) {
  const spans = [];
  let at = null;
  lane.calls.forEach((c, i) => {
    if (c.parts.length <= depth) return;
    const path = c.parts.slice(0, depth + 1).join(".");
    if (at && at.path === path && i - at.last <= 4) at.last = i;
    else spans.push(at = { first: i, last: i, path, name: c.parts[depth] });
  });
  return spans;
}

/* Calls of one column, and how many of them have each look. */
function columnsOf(lane, width) {
  const n = lane.calls.length;
  const wide = Math.min(WIDEST, width / n);
  const count_ = wide >= COLUMN ? n : Math.min(n, Math.floor(width / COLUMN));
  const columns = [];
  for (let k = 0; k < count_; k++) {
    const from = Math.floor((k * n) / count_), to = Math.floor(((k + 1) * n) / count_);
    columns.push({ from, to, x: k * (wide >= COLUMN ? wide : width / count_), looks: {} });
    for (let i = from; i < to; i++) {
      const look = lane.calls[i].look;
      columns[k].looks[look] = (columns[k].looks[look] || 0) + 1;
    }
  }
  lane.wide = wide >= COLUMN ? wide : width / count_;
  lane.scale = n > 0 ? (lane.wide * count_) / n : 1; // pixels of one call
  return columns;
}

/* The strokes of a look that colours alone would not tell. */
function strokesOf(look, x, y, w, h) {
  const d = [];
  if (look === "open" || look === "dead") {
    for (let c = Math.floor((x - y - h) / 5) * 5; c <= x + w - y; c += 5) { // x - y = c
      const from = Math.max(x, c + y), to = Math.min(x + w, c + y + h);
      if (to > from) d.push(`M${from.toFixed(1)} ${(from - c).toFixed(1)}L${to.toFixed(1)} ${(to - c).toFixed(1)}`);
    }
  } else if (look === "free") {
    for (let py = y + 3; py < y + h - 1; py += 6)
      for (let px = Math.ceil(x / 5) * 5; px < x + w; px += 5) d.push(`M${px} ${py}h.01`);
  }
  return d.join("");
}

/* One rectangle, or what stands in its place for a look. */
function block(root, look, x, y, w, h, faint) {
  root.append(svg("rect", { class: `k-${look}${faint ? " faint" : ""}`, x: x.toFixed(2), y: y.toFixed(2),
    width: w.toFixed(2), height: h.toFixed(2) }));
  const d = strokesOf(look, x, y, w, h);
  if (d) root.append(svg("path", { class: `s-${look}`, d }));
}

/* How high each look stands in a column of several: the accused together, and the worst of
 * them, are never too thin to see. */
function heightsOf(column, looks, n) {
  const share = looks.map((look) => (CELL * column.looks[look]) / n);
  const bad = looks.filter(isBad).length;
  const sum = share.slice(0, bad).reduce((a, b) => a + b, 0);
  for (let i = 0; i < bad; i++) share[i] *= Math.max(6, sum) / sum;
  if (bad > 0) share[0] = Math.max(3, share[0]);
  for (let i = bad; i < looks.length; i++) if (looks[i] !== "pass") share[i] = Math.max(3, share[i]);
  const total = share.reduce((a, b) => a + b, 0); // what was made higher is taken from the most
  share[share.indexOf(Math.max(...share))] -= total - CELL;
  return share;
}

function drawColumns(root, lane, y) {
  const gap = lane.wide >= 4 ? 1 : 0;
  let run = null; // neighbours that look alike are one rectangle where they touch
  const flush = () => {
    if (run) block(root, run.look, run.x, y, run.w, CELL, run.faint);
    run = null;
  };
  const bad = [];
  for (const column of lane.columns) {
    const n = column.to - column.from;
    const looks = LOOKS.filter((look) => column.looks[look]);
    const worst = lane.calls[column.from];
    const faint = n === 1 && (worst.known || worst.allowed) && isBad(looks[0]);
    const w = Math.max(0.5, lane.wide - gap);
    if (looks.length === 1) {
      if (run && gap === 0 && run.look === looks[0] && run.faint === faint) run.w += w;
      else {
        flush();
        run = { look: looks[0], x: column.x, w, faint };
      }
      if (isBad(looks[0]) && w < 3) bad.push([looks[0], column.x, CELL]);
      continue;
    }
    flush();
    let at = y;
    const share = heightsOf(column, looks, n);
    for (const [i, look] of looks.entries()) {
      const h = share[i];
      block(root, look, column.x, at, w, h, false);
      if (isBad(look) && w < 3) bad.push([look, column.x, h]);
      at += h;
    }
  }
  flush();
  for (const [look, x, h] of bad.reverse()) block(root, look, x - 0.5, y, 3, h, false);
}

/* A name, cut, or the number in the list alone: what so many letters hold. */
function nameIn(name, room) {
  if (name.length <= room) return name;
  if (room >= 5) return `${name.slice(0, room - 1)}…`;
  const last = name.slice(name.lastIndexOf(".") + 1);
  return /^\d+$/.test(last) && last.length <= room ? last : "";
}

function drawSpans(root, lane, depth, y) {
  for (const span of lane.spans[depth]) {
    const x = span.first * lane.scale, w = (span.last - span.first + 1) * lane.scale;
    if (w < 3) continue;
    let worst = "pass";
    for (let i = span.first; i <= span.last; i++)
      if (LOOKS.indexOf(lane.calls[i].look) < LOOKS.indexOf(worst)) worst = lane.calls[i].look;
    root.append(svg("rect", { class: "span", x: (x + 0.5).toFixed(1), y: y + 0.5, width: (w - 1).toFixed(1), height: SPAN - 3, rx: 2 }));
    if (isBad(worst))
      root.append(svg("rect", { class: `k-${worst}`, x: (x + 0.5).toFixed(1), y: y + SPAN - 4, width: (w - 1).toFixed(1), height: 2 }));
    const text = nameIn(span.name, Math.floor((w - 4) / 6.2));
    if (text) root.append(svg("text", { x: (x + 3).toFixed(1), y: y + SPAN - 5.5 }, text));
  }
}

const tallyOf = (calls_) => {
  const n = {};
  for (const c of calls_) n[c.verdict] = (n[c.verdict] || 0) + 1;
  return ORDER.filter((v) => n[v]).map((v) => `${count(n[v])} ${v}`).join(", ");
};

function shortTally(calls_) {
  const n = calls_.filter((c) => ACCUSED.has(c.verdict)).length;
  if (data.trace) return n > 0 ? `${count(n)} with NaN, Inf` : "no NaN, Inf";
  return n > 0 ? `${count(n)} accused` : "none accused";
}

/* All lanes at a width, with where everything is for the pointer. */
function pictureOf(all, module, width) {
  const lanes = lanesOf(all, module);
  const root = svg("svg", { class: "step", width, role: "img", tabindex: "0" });
  let y = 0;
  for (const lane of lanes) {
    const deep = Math.max(0, ...lane.calls.map((c) => c.parts.length));
    const depth = Math.min(deep, width < 600 ? 2 : 4);
    lane.columns = columnsOf(lane, width);
    lane.spans = Array.from({ length: depth }, (_, d) => spansOf(lane, d))
      .filter((spans) => spans.some((s) => (s.last - s.first + 1) * lane.scale >= 3));
    root.append(svg("text", { class: "lane", x: 0, y: y + 12 },
      `${lane.phase} → ${plural(lane.calls.length, "call")}: ${width < 600 ? shortTally(lane.calls) : tallyOf(lane.calls)}`));
    lane.spansAt = y + 18;
    lane.spans.forEach((_, d) => drawSpans(root, lane, d, lane.spansAt + d * SPAN));
    lane.top = lane.spansAt + lane.spans.length * SPAN + 1;
    drawColumns(root, lane, lane.top);
    y = lane.top + CELL + 16;
  }
  const height = Math.max(y - 8, 20);
  root.setAttribute("height", height);
  root.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const first = firstAccused(lanes);
  root.setAttribute("aria-label", `${plural(lanes.reduce((n, l) => n + l.calls.length, 0), "call")} in order of execution. ` +
    lanes.map((l) => `${l.phase}: ${tallyOf(l.calls)}`).join("; ") +
    (first ? `. The first ${data.trace ? "such" : "accused"} call is #${first.call} ${named(first)} in ${place(first)}.` : "."));
  return { root, lanes };
}

const firstAccused = (lanes) => lanes.flatMap((l) => l.calls).filter((c) => ACCUSED.has(c.verdict))
  .reduce((a, c) => (a === null || c.call < a.call ? c : a), null);

/* What stands at a point: the calls of a column, or a module. */
function targetAt(picture, x, y) {
  for (const lane of picture.lanes) {
    if (y >= lane.top && y < lane.top + CELL + 8) {
      const column = lane.columns[Math.floor(x / lane.wide)];
      return column ? { calls: lane.calls.slice(column.from, column.to) } : null;
    }
    const depth = Math.floor((y - lane.spansAt) / SPAN);
    const span = y >= lane.spansAt && lane.spans[depth] &&
      lane.spans[depth].find((s) => x >= s.first * lane.scale && x < (s.last + 1) * lane.scale);
    if (span) return { calls: lane.calls.slice(span.first, span.last + 1), module: span.path.replace(/^step \d+\.?/, "") };
  }
  return null;
}

const worstOf = (calls_) => calls_.reduce((a, c) => (LOOKS.indexOf(c.look) < LOOKS.indexOf(a.look) ? c : a));

function tipOf(target) {
  const c = worstOf(target.calls);
  const many = target.calls.length > 1;
  const tip = [];
  if (target.module) tip.push(el("b", null, target.module), el("br"));
  if (many) tip.push(`${plural(target.calls.length, "call")}: ${tallyOf(target.calls)}`, el("br"));
  if (target.module && !isBad(c.look)) return [...tip, "click: this module alone"];
  return [...tip, many ? "the worst: " : "", el("b", null, `#${c.call} ${named(c)}`), ` in ${place(c)}`, el("br"),
    pill(c.verdict), " ", typeof c.bits === "number" ? `${bitsText(c)} bits. ` : "",
    c.sentence || c.cause, markText(c) && ` (${markText(c)})`];
}

function legendOf(looks) {
  const texts = data.trace ? { pass: "captured", l3: "carries NaN or Inf on", l5: "raised", dead: "makes NaN or Inf", open: "unfinished" } : { pass: "pass", l1: "under 4 bits lost", l2: "4 to 8 lost", l3: "8 to 14 lost", l4: "14 to 18 lost", l5: "18 and more lost, or wrong",
    dead: "crashed, timeout, non-finite", open: "not judged", free: "undefined or excused" };
  const legend = el("div", { class: "legend" });
  for (const look of [...LOOKS].reverse().filter((l) => l === "pass" || looks.has(l))) {
    const sample = svg("svg", { class: "swatch", width: 22, height: 14, "aria-hidden": "true" });
    block(sample, look, 0, 0, 22, 14, false);
    legend.append(el("span", null, sample, texts[look]));
  }
  return legend;
}

// ---- in the page ------------------------------------------------------------

const step = { module: "", picture: null, at: -1 };

function showTip(target, x, y) {
  const tip = byId("tip");
  tip.replaceChildren(...tipOf(target).filter((t) => t !== null && t !== ""));
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(x + 12, window.innerWidth - box.width - 8))}px`;
  tip.style.top = `${y + 16 + box.height > window.innerHeight ? Math.max(4, y - box.height - 10) : y + 16}px`;
}

function zoom(module) {
  step.module = module;
  drawStep();
}

function listen(root) {
  const scaled = (e) => {
    const box = root.getBoundingClientRect();
    return targetAt(step.picture, ((e.clientX - box.left) * root.viewBox.baseVal.width) / box.width, e.clientY - box.top);
  };
  root.addEventListener("pointermove", (e) => {
    const target = scaled(e);
    root.style.cursor = target ? "pointer" : "default";
    if (target) showTip(target, e.clientX, e.clientY);
    else byId("tip").hidden = true;
  });
  root.addEventListener("pointerleave", () => { byId("tip").hidden = true; });
  root.addEventListener("blur", () => { byId("tip").hidden = true; });
  root.addEventListener("click", (e) => {
    const target = scaled(e);
    byId("tip").hidden = true;
    if (target && target.module) zoom(target.module);
    else if (target) location.hash = `#call-${worstOf(target.calls).call}`;
  });
  root.addEventListener("keydown", (e) => walkAccused(root, e));
}

/* Arrows go from one accused call to the next, Enter opens it. */
function walkAccused(root, e) {
  const found = step.picture.lanes.flatMap((lane) => lane.calls.map((c, i) => [c, lane, i]))
    .filter(([c]) => isBad(c.look)).sort((a, b) => a[0].call - b[0].call);
  const move = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
  if (found.length === 0 || (!move && e.key !== "Enter")) return;
  e.preventDefault();
  if (!move && step.at >= 0) {
    location.hash = `#call-${found[step.at][0].call}`;
    return;
  }
  step.at = Math.max(0, Math.min(found.length - 1, step.at + (move || 1)));
  const [c, lane, i] = found[step.at];
  const box = root.getBoundingClientRect();
  showTip({ calls: [c] }, box.left + i * lane.scale, box.top + lane.top + CELL);
}

function drawStep(width) {
  const box = byId("step");
  if (calls.length === 0) return;
  const room = width || Math.floor(box.clientWidth - 36);
  if (room < 100) return; // another page is open
  step.picture = pictureOf(calls, step.module, room);
  step.at = -1;
  const { root, lanes } = step.picture;
  const all = lanes.flatMap((l) => l.calls);
  const first = firstAccused(lanes);
  const whole = el("button", { type: "button", class: "chip dim" }, "whole step");
  whole.addEventListener("click", () => zoom(""));
  box.replaceChildren(el("div", { class: "card" },
    el("h2", { id: "step-title" }, step.module ? `The step inside ${step.module} ` : "The step, call by call", step.module ? whole : null),
    el("p", { class: "quiet" }, first ? (data.trace ? "NaN, Inf or an exception begins at " : "Errors begin at ") : data.trace ? "" : "No call is accused. ",
      first && el("a", { href: `#call-${first.call}` }, `#${first.call} ${named(first)}`), first && ` in ${place(first)}, ${first.phase || "no phase"}. `,
      el("span", { class: "screen" }, "Left to right is the order of execution; click a call to open it, a module to see it alone.")),
    root, legendOf(new Set(all.map((c) => c.look)))));
  listen(root);
}

window.addEventListener("resize", () => drawStep());
window.addEventListener("beforeprint", () => drawStep(680));
window.addEventListener("afterprint", () => drawStep());
