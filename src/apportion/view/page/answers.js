// ---- One group: its answers against each other, and each by itself --------------------------------------------------

const LONG = 400; // tokens; longer answers stand below each other
const AT_ONCE = 6000; // tokens that are drawn before one scrolls to them
const TABLE = 300; // rows of a table of steps
const pip = (answer) => make("span", "pip " + (answer.outcome === null ? "unscored" : good(answer) ? "passed" : ""));
const bodies = new Map();

/** The answers of a group with all their columns; read when somebody first looks at it. */
function bodyOf(shelf, group) {
  const name = `${shelf}-${group}`;
  if (!bodies.has(name)) {
    const text = document.getElementById(`body-${name}`)?.textContent;
    const entries = data.shelves[shelf].answers.filter((answer) => answer.group === group);
    const found = text ? JSON.parse(text) : { prompt: { id: [], text: null }, answers: [] };
    const answers = found.answers.map((body, n) => {
      const of = spread(body.of);
      return { ...entries[n], ...body, among: entries[n].among, of, advantage: body.advantage && spread(body.advantage), count: entries[n].steps, sampled: entries[n].tokens, entry: entries[n] };
    });
    answers.forEach((answer, n) => Object.assign(answer, departure(answers, n)));
    bodies.set(name, { ...found, answers });
  }
  return bodies.get(name);
}

/** The token from which on an answer is like no other of its group (-1 = from the first), or the answer it is like. */
function departure(answers, n) {
  const { id } = answers[n];
  let longest = -1, twin = null;
  for (const [m, { id: other }] of answers.entries()) {
    if (m === n) continue;
    let t = 0;
    while (t < id.length && t < other.length && id[t] === other[t]) t++;
    if (t === id.length && t === other.length) twin ??= answers[m];
    longest = Math.max(longest, t);
  }
  return { departs: longest > 0 && longest < id.length ? longest : -1, twin };
}

/** Reward so far plus value, step by step. With telescoping credit, every rise and fall is the credit of a step. */
function drawWalk(answer) {
  const { value } = answer.steps, reward = answer.steps.reward ?? value?.map(() => 0), count = answer.count;
  if (answer.outcome === null || count < 2 || !value || value.includes(null) || reward.includes(null)) return null;
  let earned = 0;
  const worth = value.map((v, k) => { const w = earned + v; earned += reward[k]; return w; });
  if (answer.steps.credit) worth.push(earned + (answer.ended ? 0 : answer.end ?? 0));
  const low = Math.min(0, ...worth), high = Math.max(1, ...worth);
  const y = (w) => 50 - ((w - low) / (high - low)) * 46;
  const walk = make("figure", "walk");
  const caption = make("figcaption", "", "expected return along the answer");
  caption.append(make("span", "", `${say(worth[0])} → ${say(worth.at(-1))}`));
  const svg = draw("svg", { viewBox: `0 0 ${worth.length - 1} 54`, preserveAspectRatio: "none", "aria-hidden": "true" });
  walk.append(caption, svg);
  const fixed = { "vector-effect": "non-scaling-stroke" };
  for (const w of [0, 1]) draw("line", { class: "zero", x1: 0, x2: count, y1: y(w), y2: y(w), ...fixed }, svg);
  if (count > TABLE) {
    draw("path", { d: "M" + worth.map((w, k) => `${k} ${y(w).toFixed(1)}`).join("L"), ...fixed }, svg);
    return walk;
  }
  for (let k = 0; k + 1 < worth.length; k++) {
    const change = worth[k + 1] - worth[k];
    const kind = change > 1e-9 ? "credit" : change < -1e-9 ? "blame" : "";
    draw("path", { class: kind, d: `M${k} ${y(worth[k])}L${k + 1} ${y(worth[k + 1])}`, "stroke-linecap": "round", ...fixed }, svg);
    draw("rect", { x: k, y: 0, width: 1, height: 54, "data-k": k }, svg);
  }
  return walk;
}

/** All steps of an answer with all their numbers; of very many, those where most happened. */
function drawTable(answer) {
  const table = make("table", "steps"), head = make("tr"), spans = new Map();
  answer.of.forEach((k, t) => { if (k >= 0) spans.set(k, (spans.get(k) ?? "") + (answer.text ? answer.text[t] : ` ${answer.id[t]}`).slice(0, 80)); });
  let rows = Array.from({ length: answer.count }, (_, k) => k);
  const weight = answer.steps.credit ?? answer.steps.reward ?? [];
  if (rows.length > TABLE) rows = rows.sort((a, b) => Math.abs(weight[b] ?? 0) - Math.abs(weight[a] ?? 0)).slice(0, TABLE).sort((a, b) => a - b);
  head.append(...["step", "text", ...stepCells(answer, 0).map(([name]) => name)].map((name) => make("th", "", name)));
  table.append(head, ...rows.map((k) => {
    const row = make("tr"), said = make("td", "said");
    spell(said, (spans.get(k) ?? "").slice(0, 80));
    row.append(make("td", "", String(k)), said, ...stepCells(answer, k).map(([, text, tone]) => make("td", tone > 0 ? "credit" : tone < 0 ? "blame" : "", text)));
    return row;
  }));
  if (rows.length < answer.count) table.append(make("caption", "", `${TABLE} of ${whole(answer.count)} steps, those of the largest |credit|`));
  return table;
}

function headOf(answer) {
  const head = make("header");
  const title = make("strong", "", answer.outcome === null ? "not scored" : `outcome ${say(answer.outcome)}`);
  title.prepend(pip(answer));
  head.append(title, make("span", "", `answer ${plain(answer.name)}`), make("span", "", many(answer.tokens, "token")));
  if (answer.count > 1) head.append(make("span", "", many(answer.count, "step")));
  if (answer.drop) head.append(make("span", "", `largest drop ${say(answer.drop)}`));
  for (const [name, figure] of Object.entries(answer.figures ?? {})) head.append(make("span", "", `${plain(name)} ${say(figure)}`));
  if (answer.twin) head.append(make("span", "", `same tokens as answer ${plain(answer.twin.name)}`));
  if (!answer.ended) head.append(make("span", "flag", "cut off"));
  return head;
}

/** An article for an answer; its tokens are drawn by `fill`, when one looks. */
function frame(answer) {
  const node = make("article", "answer");
  const shown = { owner: answer, tokens: [], node };
  node.append(headOf(answer));
  node.style.minHeight = `${Math.min(34, 6 + answer.id.length / 40)}rem`;
  shown.fill = () => {
    shown.fill = () => {};
    node.style.minHeight = "";
    const text = drawTokens(answer, shown), walk = drawWalk(answer);
    node.append(text);
    listen(text, shown);
    if (walk) {
      node.append(walk);
      shown.walk = [...walk.querySelectorAll("rect")];
      walk.addEventListener("pointerover", ({ target }) => { if (target.dataset.k) point(shown, answer.of.indexOf(Number(target.dataset.k)), false); });
      walk.addEventListener("pointerleave", clear);
    }
    if (answer.count > 1 && stepCells(answer, 0).length) {
      const fold = make("details", "numbers");
      fold.append(make("summary", "", "every step in numbers"));
      fold.addEventListener("toggle", () => { if (fold.open && fold.children.length === 1) { const scroll = make("div", "scroll"); scroll.append(drawTable(answer)); fold.append(scroll); } });
      node.append(fold);
    }
  };
  return shown;
}

/** A strip for each answer of the group, all to one scale, so that one sees where they part and where credit fell. */
function drawCompare(answers, frames) {
  const longest = Math.max(...answers.map((answer) => answer.id.length));
  const rows = answers.map((answer, n) => {
    const row = make("div", "row"), strip = make("span", "strip"), bar = make("span", "bar"), entries = column(answer);
    const pieces = Math.min(240, answer.id.length), limit = data.limits[state.colour];
    const sizes = Array.from({ length: entries && limit ? pieces : 0 }, (_, p) => {
      const part = entries.slice(Math.floor((p * entries.length) / pieces), Math.max(1, Math.floor(((p + 1) * entries.length) / pieces)));
      return part.reduce((most, entry) => (Math.abs(entry ?? 0) > Math.abs(most) ? entry : most), 0) / limit;
    });
    paint(bar, sizes.length ? sizes : [0]);
    bar.style.width = `${Math.max(1, (answer.id.length / longest) * 100)}%`;
    if (answer.departs > 0) {
      const mark = make("i", "departs");
      mark.style.left = `${(answer.departs / answer.id.length) * 100}%`;
      mark.title = `like no other answer of the group from token ${answer.departs} on`;
      bar.append(mark);
    }
    bar.addEventListener("click", (event) => {
      const { left, width } = bar.getBoundingClientRect();
      frames[n].fill();
      go(frames[n], Math.min(answer.id.length - 1, Math.max(0, Math.floor(((event.clientX - left) / width) * answer.id.length))));
    });
    const name = make("button", "", answer.outcome === null ? "–" : say(answer.outcome));
    name.type = "button";
    name.setAttribute("aria-label", `answer ${plain(answer.name)}, outcome ${say(answer.outcome)}: go to it`);
    name.prepend(pip(answer));
    name.addEventListener("click", () => { frames[n].fill(); reveal(frames[n].node, "start"); frames[n].tokens[0]?.focus({ preventScroll: true }); });
    strip.append(bar);
    row.append(name, strip, make("span", "size", answer.drop === null ? "" : say(answer.drop)));
    return row;
  });
  const head = make("div", "row head");
  head.append(make("span", "", "outcome"), make("span", "", answers.some((a) => a.departs > 0) ? "from start to end; the line: from here on like no other answer" : "from start to end"), make("span", "size", "drop"));
  $(".compare").replaceChildren(...(answers.length > 1 ? [head, ...rows] : []));
}

let watch = null;

/** Draw the group that is chosen. */
function showGroup() {
  clear();
  watch?.disconnect();
  $(".readout").hidden = true;
  const shelf = data.shelves[state.shelf], { name, held } = shelf.groups[state.group];
  const { prompt, answers } = bodyOf(state.shelf, state.group);
  const total = shelf.answers.filter((answer) => answer.group === state.group).length;
  $(".group-name").replaceChildren(`Group ${plain(name)} `, make("small", "", held === total ? many(total, "answer") : `${whole(held)} of ${many(total, "answer")}: the page has no room for the others`));
  $(".prompt").replaceChildren();
  if (prompt.id.length) {
    const none = prompt.id.map(() => -1);
    const shown = { owner: { ...prompt, of: none, advantage: null, logprobs: null, steps: {}, count: 0, prompt: none.length }, tokens: [] };
    const text = drawTokens(shown.owner, shown);
    listen(text, shown);
    $(".prompt").append(make("span", "label", "prompt"), text);
  }
  const frames = answers.map(frame);
  drawCompare(answers, frames);
  $(".grid").classList.toggle("long", answers.some((answer) => answer.id.length > LONG));
  $(".grid").replaceChildren(...frames.map(({ node }) => node));
  const byNode = new Map(frames.map((shown) => [shown.node, shown]));
  watch = new IntersectionObserver((seen) => {
    for (const { target, isIntersecting } of seen) if (isIntersecting) { byNode.get(target).fill(); watch.unobserve(target); }
  }, { rootMargin: "600px" });
  let room = AT_ONCE;
  for (const shown of frames) {
    room -= shown.owner.id.length;
    if (room >= 0 || shown === frames[0]) shown.fill();
    else watch.observe(shown.node);
  }
  markChosen(frames);
}

/** The answer that the list has chosen stands out among its group. */
function markChosen(frames = null) {
  if (frames) markChosen.frames = frames;
  for (const { node, owner } of markChosen.frames ?? []) node.classList.toggle("chosen", owner.entry === data.shelves[state.shelf].answers[state.answer]);
}
