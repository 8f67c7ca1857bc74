const data = JSON.parse(document.getElementById("data").textContent);
const PASS = 1; // an answer passes when its outcome is at least this; outcomes beyond 0 to 1 are held against their group
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

const whole = (count) => count.toLocaleString("en-US");
const many = (count, one) => `${whole(count)} ${one}${count === 1 ? "" : "s"}`;
// Where outcomes are not shares of a full mark, an answer is good that is above the mean of its group.
const GRADED = data.shelves.some(({ answers }) => answers.some(({ outcome }) => outcome < 0 || outcome > 1));
for (const { answers } of GRADED ? data.shelves : []) {
  const sums = new Map();
  for (const { group, outcome } of answers) if (outcome !== null) { const [sum, count] = sums.get(group) ?? [0, 0]; sums.set(group, [sum + outcome, count + 1]); }
  for (const answer of answers) { const [sum, count] = sums.get(answer.group) ?? [0, 1]; answer.among = sum / count; }
}
const good = ({ outcome, among }) => outcome !== null && (GRADED ? outcome > among + 1e-9 : outcome >= PASS);
const known = (values) => values.filter((value) => value !== null);

/** A name, with what cannot be seen or turns the writing round made visible. */
const plain = (name) => name.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu, code);

/** What `runs` of the writer put together: every entry as often as it stood there. */
function spread(runs) {
  const entries = [];
  for (let n = 0; n < runs.length; n += 2) for (let m = runs[n + 1]; m > 0; m--) entries.push(runs[n]);
  return entries;
}

/** Buttons of which one is pressed. */
function choice(parent, names, current, choose) {
  parent.replaceChildren(...names.map((name, n) => {
    const button = make("button", "", String(name));
    button.type = "button";
    button.setAttribute("aria-pressed", String(n === current));
    button.addEventListener("click", () => { choose(n); parent.querySelectorAll("button")[n].focus(); });
    return button;
  }));
}

/** Something to scroll into view without a sudden jump of the page. */
function reveal(node, block = "nearest") {
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  node.scrollIntoView({ block, behavior: calm ? "auto" : "smooth" });
}
