// ---- What is known of a token or step, said where one points --------------------------------------------------------

const SAME = 5000; // tokens of a step that are lit up with the one that is pointed at
const lit = [];

function clear() {
  for (const node of lit.splice(0)) node.classList.remove("same", "here");
}

/** Hover and keyboard: arrows go to the next token or step. */
function listen(box, shown) {
  const at = (event) => Number(event.target.closest(".token")?.dataset.t ?? -1);
  for (const begin of ["pointerover", "focusin"]) box.addEventListener(begin, (event) => { if (at(event) >= 0) point(shown, at(event)); });
  for (const end of ["pointerleave", "focusout"]) box.addEventListener(end, clear);
  box.addEventListener("keydown", (event) => {
    const from = at(event), of = shown.owner.of;
    let to = { ArrowLeft: from - 1, ArrowRight: from + 1, Home: 0, End: of.length - 1 }[event.key];
    if (event.key === "ArrowDown") to = of.findIndex((k, t) => t > from && k > of[from]);
    if (event.key === "ArrowUp") to = of.indexOf(of.slice(0, from).findLast((k) => k >= 0 && k < (of[from] < 0 ? Infinity : of[from])));
    if (event.key === "Escape") { $(".readout").hidden = true; clear(); }
    if (to === undefined || to < 0 || to >= of.length) return;
    event.preventDefault();
    go(shown, to, from);
  });
}

function go(shown, to, from = shown.tokens.findIndex((token) => token.tabIndex === 0)) {
  if (to >= shown.tokens.length) shown.more(to + PIECE);
  if (from >= 0) shown.tokens[from].tabIndex = -1;
  shown.tokens[to].tabIndex = 0;
  shown.tokens[to].focus();
}

/** Light up a token and its step, and say what is known of it. */
function point(shown, t, alone = true) {
  clear();
  const { owner } = shown, k = owner.of[t];
  if (alone) { shown.tokens[t].classList.add("here"); lit.push(shown.tokens[t]); }
  if (k >= 0 && owner.count > 1) {
    const same = shown.tokens.filter((_, other) => owner.of[other] === k).slice(0, SAME);
    if (shown.walk?.[k]) same.push(shown.walk[k]);
    for (const node of same) node.classList.add("same");
    lit.push(...same);
  }
  readOut(owner, t, alone);
}

/** Names and values of what is known of step k: [name, text, number whose sign colours it]. */
function stepCells(owner, k) {
  const { reward, value, credit, normalised, ...parts } = owner.steps;
  const cells = [];
  if (reward) cells.push(["reward", say(reward[k])]);
  for (const [name, part] of Object.entries(parts)) if (part) cells.push([name, say(part[k])]);
  if (value) {
    const after = k + 1 < owner.count ? say(value[k + 1]) : owner.ended ? "end" : owner.end === null ? "cut off" : say(owner.end);
    cells.push(["value before → after", `${say(value[k])} → ${after}`]);
  }
  if (credit) cells.push(["credit", say(credit[k], { sign: true }), credit[k]]);
  if (normalised && credit && normalised[k] !== credit[k]) cells.push(["normalised", say(normalised[k], { sign: true }), normalised[k]]);
  return cells;
}

function readOut(owner, t, alone) {
  const k = owner.of[t], box = $(".readout");
  const text = owner.text ? JSON.stringify(owner.text[t].slice(0, 200)).slice(1, -1).replaceAll('\\"', '"').replace(/[\p{Cf}\p{Zl}\p{Zp}]/gu, code) : "";
  const id = owner.id[t] >= 0 ? `token ${owner.id[t]}` : "word";
  const cells = [alone ? [text ? id : `${id}, no text`, text || " "] : ["tokens", "whole step"]];
  if (k < 0) cells.push(["step", t < owner.prompt ? "prompt" : "not sampled by the policy"]);
  else {
    if (owner.count > 1) cells.push(["step", `${k} of 0–${owner.count - 1}`]);
    cells.push(...stepCells(owner, k));
    if (owner.outcome === null) cells.push(["credit", "none: the answer was not scored"]);
    if (owner.advantage) cells.push([owner.steps.credit ? "advantage" : "advantage as logged", say(owner.advantage[t], { sign: true }), owner.advantage[t]]);
    if (owner.logprobs && owner.logprobs[t] !== null) cells.push(["sampled with probability", say(Math.exp(owner.logprobs[t]))]);
    if (cells.length === 1) cells.push(["credit", "none in this file"]);
  }
  box.replaceChildren(...cells.map(([name, value, tone]) => {
    const cell = make("div", tone > 0 ? "credit" : tone < 0 ? "blame" : "");
    cell.append(make("span", "", name), make("strong", "", value));
    return cell;
  }));
  box.hidden = false;
}
