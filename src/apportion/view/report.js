"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const CURVES = [
    { key: "pass_rate", name: "Pass rate", about: "answers of the training batch", percent: true },
    { key: "outcome_mean", name: "Outcome", about: "mean of the scored answers" },
    { key: "mean_abs_advantage", name: "|Advantage|", about: "mean over trained tokens", zero: true },
    { key: "kl", name: "KL", about: "to the starting model, nats a token", zero: true },
    { key: "entropy", name: "Entropy", about: "nats a token", zero: true },
    { key: "grad_norm", name: "Gradient norm", about: "before clipping", zero: true },
    { key: "length_p50", name: "Answer length", about: "tokens: median, with 10 to 90 %", band: ["length_p10", "length_p90"], zero: true },
    { key: "tokens_per_second", name: "Tokens a second", about: "generated, over the whole step", zero: true },
  ];
  const PASS = 1; // an answer passes when its outcome is at least this
  const LONG = 400; // tokens; longer answers stand below each other
  const MINUS = "\u2212";

  const $ = (selector) => document.querySelector(selector);
  const SVG = $("#svg").content.firstElementChild.namespaceURI;

  /** An element; text goes in as text only. */
  function make(tag, className = "", text = null) {
    const node = document.createElement(tag);
    if (className) node.className = className;
    if (text !== null) node.textContent = text;
    return node;
  }

  function draw(tag, attributes, parent, text = null) {
    const node = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    if (text !== null) node.textContent = text;
    if (parent) parent.append(node);
    return node;
  }

  /** A number as people read it; a dash for what is not known. */
  function say(value, { sign = false, percent = false } = {}) {
    if (value === null || value === undefined) return "–";
    const x = percent ? value * 100 : value;
    const size = Math.abs(x);
    let text = String(Number(size.toPrecision(3)));
    if (percent) text = size.toFixed(1) + " %";
    else if (size >= 1000) text = Math.round(size).toLocaleString("en-US");
    else if (size !== 0 && size < 0.001) text = size.toExponential(1).replace("e-", "e" + MINUS);
    return (x < 0 ? MINUS : sign && x > 0 ? "+" : "") + text;
  }

  const known = (values) => values.filter((value) => value !== null);

  /** About `count` round numbers from low to high. */
  function ticks(low, high, count) {
    const raw = (high - low) / count;
    const unit = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 2.5, 5, 10].map((m) => m * unit).find((s) => s >= raw * 0.999);
    const found = [];
    for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n++) found.push(Number((n * step).toPrecision(12)));
    return found;
  }

  // ---- Curves -------------------------------------------------------------------------------------------------

  const steps = data.curves.step;
  const charts = [];
  let smooth = false;

  function smoothed(values) {
    const reach = Math.max(1, Math.round(values.length / 40));
    return values.map((value, i) => {
      const near = known(values.slice(Math.max(0, i - reach), i + reach + 1));
      return value === null ? null : near.reduce((a, b) => a + b, 0) / near.length;
    });
  }

  /** A path through the points that are known; a gap where one is not. */
  function path(values, x, y) {
    let pen = "M";
    return values.map((value, i) => {
      if (value === null) { pen = "M"; return ""; }
      const move = `${pen}${x(steps[i]).toFixed(1)} ${y(value).toFixed(1)}`;
      pen = "L";
      return move + (values[i - 1] == null && values[i + 1] == null ? "h0.01" : "");
    }).join("");
  }

  function drawChart(chart) {
    const { curve, svg } = chart;
    const values = data.curves[curve.key];
    const band = (curve.band ?? []).map((key) => data.curves[key]);
    const width = svg.clientWidth || 240, height = 118, left = 42, right = width - 6, top = 6, bottom = height - 20;
    const all = known([values, ...band].flat());
    let low = Math.min(...all, ...(curve.zero || curve.percent ? [0] : [])), high = Math.max(...all, ...(curve.percent ? [0.1] : []));
    if (low === high) { const pad = Math.abs(low) * 0.1 || 1; if (!curve.zero || low) low -= pad; high += pad; }
    const yTicks = ticks(low, high, 4);
    const [first, last] = [steps[0], steps.at(-1)];
    const x = (step) => first === last ? (left + right) / 2 : left + ((step - first) / (last - first)) * (right - left);
    const y = (value) => bottom - ((value - low) / (high - low)) * (bottom - top);
    svg.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    for (const tick of yTicks) {
      draw("line", { class: "gridline", x1: left, x2: right, y1: y(tick), y2: y(tick) }, svg);
      const label = curve.percent ? Number((tick * 100).toPrecision(3)) + (tick === yTicks.at(-1) ? " %" : "") : say(tick);
      draw("text", { class: "tick", x: left - 6, y: y(tick) + 3.5, "text-anchor": "end" }, svg, label);
    }
    draw("line", { class: "axis", x1: left, x2: right, y1: bottom + 0.5, y2: bottom + 0.5 }, svg);
    for (const tick of first === last ? [first] : ticks(first, last, 4).filter(Number.isInteger)) {
      draw("line", { class: "axis", x1: x(tick), x2: x(tick), y1: bottom, y2: bottom + 4 }, svg);
      draw("text", { class: "tick", x: x(tick), y: height - 3, "text-anchor": x(tick) > right - 8 ? "end" : "middle" }, svg, String(tick));
    }
    if (band.length && known(band.flat()).length === 2 * steps.length) {
      const edges = band.map((edge) => edge.map((value, i) => `${x(steps[i]).toFixed(1)} ${y(value).toFixed(1)}`));
      draw("path", { class: "band", d: "M" + [...edges[0], ...edges[1].reverse()].join("L") + "Z" }, svg);
    }
    if (smooth) draw("path", { class: "curve raw", d: path(values, x, y) }, svg);
    draw("path", { class: "curve", d: path(smooth ? smoothed(values) : values, x, y) }, svg);
    Object.assign(chart, {
      at: (px) => nearest(first + ((px - left) / (right - left)) * (last - first)),
      cursor: draw("line", { class: "cursor", y1: top, y2: bottom, visibility: "hidden" }, svg),
      point: draw("circle", { class: "point", r: 3.5, visibility: "hidden" }, svg),
      x, y, values,
    });
  }

  const nearest = (step) => steps.reduce((best, s, i) => (Math.abs(s - step) < Math.abs(steps[best] - step) ? i : best), 0);

  /** The same training step marked in all charts; null = the last one, unmarked. */
  function mark(index) {
    for (const chart of charts) {
      const i = index ?? steps.length - 1, value = chart.values[i], seen = index !== null;
      chart.output.textContent = (seen ? `step ${steps[i]}: ` : "") + say(value, chart.curve);
      chart.cursor.setAttribute("visibility", seen ? "visible" : "hidden");
      chart.point.setAttribute("visibility", (seen || steps.length === 1) && value !== null ? "visible" : "hidden");
      for (const name of ["x1", "x2"]) chart.cursor.setAttribute(name, chart.x(steps[i]));
      chart.point.setAttribute("cx", chart.x(steps[i]));
      chart.point.setAttribute("cy", chart.y(value ?? 0));
    }
  }

  function drawCurves() {
    charts.forEach(drawChart);
    mark(null);
  }

  function makeCurves() {
    const note = $("#curves-note");
    if (!steps.length) { note.textContent = "No training step is logged yet."; return; }
    if (steps.length < data.steps_total) note.textContent = `${steps.length} of ${data.steps_total} steps are drawn, evenly spaced.`;
    for (const curve of CURVES) {
      const values = data.curves[curve.key];
      if (!known(values).length) continue;
      const [figure, caption, output] = [make("figure", "chart"), make("figcaption"), make("output")];
      const svg = draw("svg", { role: "img", tabindex: 0, "aria-label": `${curve.name}: from ${say(known(values)[0], curve)} to ${say(known(values).at(-1), curve)}` });
      caption.append(make("strong", "", curve.name), output);
      figure.append(caption, make("div", "about", curve.about), svg);
      $(".charts").append(figure);
      const chart = { curve, svg, output };
      let here = steps.length - 1;
      svg.addEventListener("pointermove", (event) => mark((here = chart.at(event.clientX - svg.getBoundingClientRect().left))));
      for (const end of ["pointerleave", "blur"]) svg.addEventListener(end, () => mark(null));
      svg.addEventListener("keydown", (event) => {
        const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
        if (!move) return;
        event.preventDefault();
        mark((here = Math.min(steps.length - 1, Math.max(0, here + move))));
      });
      charts.push(chart);
    }
    if (steps.length >= 20) {
      $("#smooth").hidden = false;
      $("#smooth input").addEventListener("change", (event) => { smooth = event.target.checked; drawCurves(); });
    }
    drawCurves();
    addEventListener("resize", drawCurves);
  }

  // ---- Answers ------------------------------------------------------------------------------------------------

  const INVISIBLE = /[\n\r\t\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]|(?<= ) | (?= )|^ $/gu;
  const JOINER = "\u200d"; // holds emoji together

  function code(character) {
    return character === JOINER ? character : "U+" + character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
  }

  /** A token's text, with what cannot be seen made visible. */
  function spell(node, text) {
    let end = 0;
    for (const { 0: found, index } of text.matchAll(INVISIBLE)) {
      if (found === JOINER) continue;
      node.append(text.slice(end, index));
      end = index + found.length;
      if (found === "\n") node.append(make("i", "mark", "↵"), "\n");
      else if (found === "\t") node.append(make("i", "mark", "⇥"), "\t");
      else if (found === " ") node.append(make("i", "mark", "·"));
      else node.append(make("i", "mark code", code(found)));
    }
    node.append(text.slice(end));
  }

  const tokenText = (owner, t) => (owner.text ? owner.text[t] : String(owner.id[t]));

  /** The tokens of a prompt or answer. */
  function drawTokens(owner, shown) {
    const box = make("div", owner.text ? "text" : "text ids");
    const count = owner.steps.reward.length;
    const numbered = count > 1 && owner.of.filter((k) => k >= 0).length / count >= 3;
    box.classList.toggle("numbered", numbered);
    let current = -1;
    for (let t = 0; t < owner.id.length; t++) {
      const token = make("span", "token");
      const k = owner.of[t], text = tokenText(owner, t), advantage = owner.advantage[t];
      if (k < 0) token.classList.add("given");
      else if (!owner.scored) token.classList.add("unscored");
      else if (advantage) {
        token.classList.add(advantage > 0 ? "credit" : "blame");
        token.style.setProperty("--size", Math.min(1, Math.abs(advantage) / data.limit).toFixed(3));
      }
      if (k >= 0 && k !== current) {
        if (count > 1) token.classList.add("first");
        const hang = t === 0 || tokenText(owner, t - 1).endsWith("\n");
        if (numbered) box.append(make("span", hang ? "number hang" : "number", String(k)));
        current = k;
      }
      if (text === "") token.append(make("i", "mark empty"));
      else spell(token, text);
      token.tabIndex = shown.tokens.length ? -1 : 0;
      token.dataset.t = t;
      shown.tokens.push(token);
      box.append(token);
    }
    return box;
  }

  /** Reward so far plus value, step by step. With telescoping credit, every rise and fall is the credit of a step. */
  function drawWalk(answer) {
    const { reward, value } = answer.steps;
    if (!answer.scored || reward.length < 2 || value.includes(null) || reward.includes(null)) return null;
    let earned = 0;
    const worth = [...value, 0].map((v, k) => { const w = earned + v; earned += reward[k] ?? 0; return w; });
    const low = Math.min(0, ...worth), high = Math.max(1, ...worth), count = reward.length;
    const y = (w) => 50 - ((w - low) / (high - low)) * 46;
    const walk = make("figure", "walk");
    const caption = make("figcaption", "", "expected return along the answer");
    caption.append(make("span", "", `${say(worth[0])} → ${say(earned)}`));
    const svg = draw("svg", { viewBox: `0 0 ${count} 54`, preserveAspectRatio: "none", "aria-hidden": "true" });
    walk.append(caption, svg);
    for (const w of [0, 1]) draw("line", { class: "zero", x1: 0, x2: count, y1: y(w), y2: y(w), "vector-effect": "non-scaling-stroke" }, svg);
    for (let k = 0; k < count; k++) {
      const change = worth[k + 1] - worth[k];
      const kind = change > 1e-9 ? "credit" : change < -1e-9 ? "blame" : "";
      draw("path", { class: kind, d: `M${k} ${y(worth[k])}L${k + 1} ${y(worth[k + 1])}`, "vector-effect": "non-scaling-stroke", "stroke-linecap": "round" }, svg);
      draw("rect", { x: k, y: 0, width: 1, height: 54, "data-k": k }, svg);
    }
    return walk;
  }

  const pip = ({ outcome }) => make("span", "pip " + (outcome === null ? "unscored" : outcome >= PASS ? "passed" : ""));

  function drawAnswer(answer) {
    const shown = { owner: answer, tokens: [] };
    const node = make("article", "answer");
    const head = make("header");
    const title = make("strong", "", answer.outcome === null ? "not scored" : `outcome ${say(answer.outcome)}`);
    title.prepend(pip(answer));
    const count = answer.steps.reward.length, sampled = answer.of.filter((k) => k >= 0).length;
    head.append(title, make("span", "", `answer ${answer.name}`), make("span", "", `${count} ${count === 1 ? "step" : "steps"}`), make("span", "", `${sampled.toLocaleString("en-US")} tokens`));
    if (!answer.ended) head.append(make("span", "flag", "cut off"));
    const text = drawTokens(answer, shown), walk = drawWalk(answer);
    node.append(head, text);
    listen(text, shown);
    if (!walk) return node;
    node.append(walk);
    shown.walk = [...walk.querySelectorAll("rect")];
    walk.addEventListener("pointerover", ({ target }) => { if (target.dataset.k) point(shown, answer.of.indexOf(Number(target.dataset.k)), false); });
    walk.addEventListener("pointerleave", clear);
    return node;
  }

  /** Hover and keyboard: arrows go to the next token or step. */
  function listen(box, shown) {
    const at = (event) => Number(event.target.closest(".token")?.dataset.t ?? -1);
    for (const begin of ["pointerover", "focusin"]) box.addEventListener(begin, (event) => { if (at(event) >= 0) point(shown, at(event)); });
    for (const end of ["pointerleave", "focusout"]) box.addEventListener(end, clear);
    box.addEventListener("keydown", (event) => {
      const from = at(event), of = shown.owner.of;
      let to = { ArrowLeft: from - 1, ArrowRight: from + 1 }[event.key];
      if (event.key === "ArrowDown") to = of.findIndex((k, t) => t > from && k > of[from]);
      if (event.key === "ArrowUp") to = of.indexOf(of.slice(0, from).findLast((k) => k >= 0 && k < (of[from] < 0 ? Infinity : of[from])));
      if (to === undefined || !shown.tokens[to]) return;
      event.preventDefault();
      shown.tokens[from].tabIndex = -1;
      shown.tokens[to].tabIndex = 0;
      shown.tokens[to].focus();
    });
  }

  const lit = [];

  function clear() {
    for (const node of lit.splice(0)) node.classList.remove("same", "here");
  }

  /** Light up a token and its step, and say what is known of it. */
  function point(shown, t, alone = true) {
    clear();
    const k = shown.owner.of[t];
    if (alone) { shown.tokens[t].classList.add("here"); lit.push(shown.tokens[t]); }
    if (k >= 0 && shown.owner.steps.reward.length > 1) {
      const same = shown.tokens.filter((_, other) => shown.owner.of[other] === k);
      if (shown.walk) same.push(shown.walk[k]);
      for (const node of same) node.classList.add("same");
      lit.push(...same);
    }
    readOut(shown.owner, t, alone);
  }

  function readOut(owner, t, alone) {
    const k = owner.of[t], { steps: columns } = owner, count = columns.reward.length;
    const box = $(".readout");
    const text = owner.text ? JSON.stringify(owner.text[t]).slice(1, -1).replaceAll('\\"', '"').replace(/[\p{Cf}\p{Zl}\p{Zp}]/gu, code) : "";
    const id = owner.id[t] >= 0 ? `token ${owner.id[t]}` : "word";
    const cells = [alone ? [text ? id : `${id}, no text`, text || " "] : ["tokens", "whole step"]];
    if (k < 0) cells.push(["step", "not sampled by the policy"]);
    else {
      const after = k + 1 < count ? say(columns.value[k + 1]) : "end";
      cells.push(["step", `${k} of 0–${count - 1}`], ["reward", say(columns.reward[k])]);
      for (const name of Object.keys(columns)) if (name.startsWith("part ")) cells.push([name, say(columns[name][k])]);
      if (!owner.scored) cells.push(["value, credit, advantage", "none: the answer was not scored"]);
      else {
        cells.push(["value before → after", `${say(columns.value[k])} → ${after}`], ["credit", say(columns.credit[k], { sign: true }), columns.credit[k]]);
        if (columns.normalised[k] !== columns.credit[k]) cells.push(["normalised", say(columns.normalised[k], { sign: true })]);
        cells.push(["advantage", say(owner.advantage[t], { sign: true }), owner.advantage[t]]);
      }
    }
    box.replaceChildren(...cells.map(([name, value, tone]) => {
      const cell = make("div", tone > 0 ? "credit" : tone < 0 ? "blame" : "");
      cell.append(make("span", "", name), make("strong", "", value));
      return cell;
    }));
    box.hidden = false;
  }

  // ---- Which ledger, which group ------------------------------------------------------------------------------

  const chosen = { ledger: data.ledgers.length - 1, group: 0 };

  function buttons(parent, count, current, fill, choose) {
    parent.replaceChildren(...Array.from({ length: count }, (_, n) => {
      const button = make("button");
      button.type = "button";
      button.setAttribute("aria-pressed", String(n === current));
      fill(button, n);
      button.addEventListener("click", () => { choose(n); parent.querySelectorAll("button")[n].focus(); });
      return button;
    }));
  }

  function show() {
    clear();
    $(".readout").hidden = true;
    const ledger = data.ledgers[chosen.ledger], group = ledger.groups[chosen.group];
    buttons($(".ledgers"), data.ledgers.length, chosen.ledger, (button, n) => { button.textContent = data.ledgers[n].step; },
      (n) => { Object.assign(chosen, { ledger: n, group: data.ledgers[n].strongest }); show(); });
    $(".ledgers").prepend(make("span", "", "training step"));
    buttons($(".groups"), ledger.groups.length, chosen.group, (button, n) => {
      const { name, answers } = ledger.groups[n], pips = make("span", "pips");
      pips.append(...answers.map(pip));
      button.title = `${answers.filter((a) => a.outcome !== null && a.outcome >= PASS).length} of ${answers.length} passed`;
      button.append(make("span", "", `group ${name}`), pips);
    }, (n) => { chosen.group = n; show(); });
    const { answers, answers_total: total, prompt } = group;
    const most = ledger.groups.length < ledger.groups_total ? `, those with the largest mean |advantage|` : "";
    $("#answers-note").textContent =
      `This page holds ${data.ledgers.length} of ${data.ledgers_total} saved ledgers, and of this one ${ledger.groups.length} of ${ledger.groups_total} groups${most}` +
      (answers.length < total ? `; of this group ${answers.length} of ${total} answers.` : ".") +
      (answers.some((answer) => answer.advantage.some(Boolean)) ? "" : " Here every advantage is 0.") +
      " A filled dot is an answer that passed. Point at a token, or move with the arrow keys.";
    $(".prompt").replaceChildren();
    if (prompt.id.length) {
      const none = prompt.id.map(() => -1);
      const shown = { owner: { ...prompt, of: none, advantage: none, steps: { reward: [] } }, tokens: [] };
      const text = drawTokens(shown.owner, shown);
      listen(text, shown);
      $(".prompt").append(make("span", "label", "prompt"), text);
    }
    $(".grid").classList.toggle("long", answers.some((answer) => answer.id.length > LONG));
    $(".grid").replaceChildren(...answers.map(drawAnswer));
  }

  makeCurves();
  if (!data.ledgers.length) $("#answers-note").textContent = "No ledger is saved yet.";
  else {
    $(".legend").hidden = false;
    $(".limit.low").textContent = data.limit ? `≤ ${say(-data.limit)}` : "0";
    $(".limit.high").textContent = data.limit ? `≥ ${say(data.limit, { sign: true })}` : "0";
    chosen.group = data.ledgers[chosen.ledger].strongest;
    show();
  }
})();
