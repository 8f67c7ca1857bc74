// ---- Tokens as text, coloured -----------------------------------------------------------------------------------------

const COLOURS = {
  advantage: "advantage of a token",
  credit: "credit of a step",
  reward: "reward of a step",
  change: "change of value in a step",
};
const SHORT = { advantage: "advantage", credit: "credit", reward: "reward", change: "value change" };
const INVISIBLE = /[\n\r\t\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]|(?<= ) | (?= )|^ $/gu;
const JOINER = "\u200d"; // holds emoji together
const LONGEST = 1000; // characters of one token that are drawn
const PIECE = 12000; // tokens of one answer that are drawn at a time

const state = { shelf: data.shelves.length - 1, group: 0, answer: 0, colour: Object.keys(data.limits)[0] ?? null, numbers: false };

function code(character) {
  return character === JOINER ? character : "U+" + character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
}

/** A token's text, with what cannot be seen made visible. */
function spell(node, text) {
  let end = 0;
  const shown = text.slice(0, LONGEST);
  for (const { 0: found, index } of shown.matchAll(INVISIBLE)) {
    if (found === JOINER) continue;
    node.append(shown.slice(end, index));
    end = index + found.length;
    if (found === "\n") node.append(make("i", "mark", "↵"), "\n");
    else if (found === "\t") node.append(make("i", "mark", "⇥"), "\t");
    else if (found === " ") node.append(make("i", "mark", "·"));
    else node.append(make("i", "mark code", code(found)));
  }
  if (end < shown.length) node.append(shown.slice(end));
  if (text.length > LONGEST) node.append(make("i", "mark code", `… ${whole(text.length)} characters`));
}

const tokenText = (owner, t) => (owner.text ? owner.text[t] : String(owner.id[t]));

/** By how much the value changes in each step; null where that is not known. */
function changes({ steps: { value }, end, ended }) {
  if (!value || value.includes(null)) return null;
  return value.map((before, k) => {
    const after = k + 1 < value.length ? value[k + 1] : ended ? null : end ?? null;
    return after === null ? null : Number((after - before).toPrecision(4));
  });
}

/** The entry of every token in the column that colours it; null = the answer has none. */
function column(owner, name = state.colour) {
  if (name === null) return null;
  if (name === "advantage") return owner.advantage;
  const entries = name === "change" ? changes(owner) : owner.steps[name];
  return entries ? owner.of.map((k) => (k < 0 ? null : entries[k])) : null;
}

/** The colour of an entry, as a class and a share of full colour. */
function tint(node, entry) {
  if (!entry) return;
  node.classList.add(entry > 0 ? "credit" : "blame");
  node.style.setProperty("--size", Math.min(1, Math.abs(entry) / data.limits[state.colour]).toFixed(3));
}

/** The tokens of a prompt or answer, drawn into a box; `shown.more` draws further ones of a very long answer. */
function drawTokens(owner, shown) {
  const box = make("div", owner.text ? "text" : "text ids");
  const entries = column(owner), count = owner.count;
  const numbered = count > 1 && owner.sampled / count >= 3, bounded = count > 1 && owner.sampled / count >= 1.5;
  box.classList.toggle("numbered", numbered);
  let parent = box, current = -1, said = null;
  const close = () => {
    if (state.numbers && said) {
      const badge = make("span", "badge " + (said > 0 ? "credit" : "blame"), say(said, { sign: true }));
      const end = shown.tokens.at(-1).lastChild; // a number stands before the end of its line
      if (end.nodeValue === "\n") end.before(badge);
      else parent.append(badge);
    }
    said = null;
  };
  const button = make("button", "more");
  button.type = "button";
  button.addEventListener("click", () => shown.more(shown.tokens.length + PIECE));
  shown.more = (until) => {
    button.remove();
    for (let t = shown.tokens.length; t < Math.min(until, owner.id.length); t++) add(t);
    const left = owner.id.length - shown.tokens.length;
    if (!left) { close(); return; }
    button.textContent = `the next ${whole(Math.min(left, PIECE))} of ${whole(left)} more tokens`;
    box.append(button);
  };
  const add = (t) => {
    const k = owner.of[t], text = tokenText(owner, t);
    const tool = k < 0 && t >= owner.prompt;
    if (!tool && parent !== box) parent = box;
    if (k >= 0 && k !== current) close();
    if (tool && parent === box) { close(); parent = make("span", "tool"); box.append(parent); }
    if (tool && text !== "\n" && !parent.said) { parent.said = true; parent.append(make("span", "who", "not sampled")); }
    const token = make("span", "token");
    if (k < 0) token.classList.add("given");
    else {
      if (owner.outcome === null) token.classList.add("unscored");
      if (entries) { tint(token, entries[t]); said = entries[t]; }
      if (k !== current) {
        if (bounded) token.classList.add("first");
        const hang = t === 0 || tokenText(owner, t - 1).endsWith("\n");
        if (numbered) parent.append(make("span", hang ? "number hang" : "number", String(k)));
        current = k;
      }
    }
    if (t === owner.departs) token.classList.add("departs");
    if (text === "") token.append(make("i", "mark empty"));
    else spell(token, text);
    token.tabIndex = shown.tokens.length ? -1 : 0;
    token.dataset.t = t;
    shown.tokens.push(token);
    parent.append(token);
  };
  shown.more(PIECE);
  return box;
}

/** A strip of colours, one piece after another, as the background of a node. */
function paint(node, sizes) {
  const stops = sizes.map((size, n) => {
    const side = size > 0 ? "--credit" : "--blame";
    const colour = size ? `color-mix(in srgb, var(${side}) ${Math.round(Math.min(1, Math.abs(size)) * 100)}%, var(--strip))` : "var(--strip)";
    return `${colour} ${((n / sizes.length) * 100).toFixed(2)}% ${(((n + 1) / sizes.length) * 100).toFixed(2)}%`;
  });
  node.style.background = stops.length ? `linear-gradient(to right, ${stops.join(",")})` : "none";
}
