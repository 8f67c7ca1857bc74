// ---- All answers of the page: filtered, sorted, and only the rows in sight are there --------------------------------

const ROW = 34; // pixels
const SHOW = {
  "all answers": () => true,
  [GRADED ? "above its group's mean" : "passed"]: (answer) => answer.outcome !== null && good(answer),
  [GRADED ? "not above its group's mean" : "failed"]: (answer) => answer.outcome !== null && !good(answer),
  "not scored": ({ outcome }) => outcome === null,
  "cut off": ({ ended }) => !ended,
  "best of its group": (answer) => answer.outcome !== null && answer.outcome === extremes(answer).best && extremes(answer).best > extremes(answer).worst,
  "worst of its group": (answer) => answer.outcome !== null && answer.outcome === extremes(answer).worst && extremes(answer).best > extremes(answer).worst,
};
const last = (value, low = Infinity) => (value === null ? low : value);
const SORT = {
  "as in the file": null,
  group: (a, b) => a.group - b.group,
  outcome: (a, b) => last(a.outcome) - last(b.outcome) || 0,
  length: (a, b) => b.tokens - a.tokens,
  "largest drop": (a, b) => last(a.drop, 1) - last(b.drop, 1),
  "mean |advantage|": (a, b) => last(b.size, -1) - last(a.size, -1),
};
const found = { order: [], best: [] };

function extremes(answer) {
  return found.best[answer.group] ?? { best: null, worst: null };
}

const number = (selector) => ($(selector).value === "" ? null : Number($(selector).value));

/** Work out anew which answers are in the list, and in which order. */
function find() {
  const { answers, groups } = data.shelves[state.shelf];
  found.best = groups.map(() => ({ best: -Infinity, worst: Infinity }));
  for (const { group, outcome } of answers) if (outcome !== null) found.best[group] = { best: Math.max(found.best[group].best, outcome), worst: Math.min(found.best[group].worst, outcome) };
  const [shortest, longest, deepest] = ["#shortest", "#longest", "#deepest"].map(number);
  const name = $("#of-group").value.trim().toLowerCase();
  const keep = SHOW[$("#show").value], order = SORT[$("#sort").value];
  found.order = answers.map((_, n) => n).filter((n) => {
    const answer = answers[n];
    return keep(answer)
      && (shortest === null || answer.tokens >= shortest) && (longest === null || answer.tokens <= longest)
      && (deepest === null || (answer.drop !== null && answer.drop <= -deepest))
      && (!name || groups[answer.group].name.toLowerCase() === name || (!/^\d+$/.test(name) && groups[answer.group].name.toLowerCase().includes(name)));
  });
  if (order) found.order.sort((a, b) => order(answers[a], answers[b]) || a - b);
  if ($("#reverse").getAttribute("aria-pressed") === "true") found.order.reverse();
  $(".found").textContent = found.order.length === answers.length ? many(answers.length, "answer") : `${whole(found.order.length)} of ${many(answers.length, "answer")}`;
  $(".track").style.height = `${found.order.length * ROW}px`;
  $(".list").style.maxHeight = `${Math.max(2, found.order.length) * ROW + 2}px`;
  $(".list").style.setProperty("--name", `${Math.min(7, Math.max(2.6, 0.43 * Math.max(...groups.map((group) => group.name.length))))}rem`);
  $(".columns").style.setProperty("--name", $(".list").style.getPropertyValue("--name"));
  $(".list").scrollTop = 0;
  drawList();
}

function drawRow(place) {
  const n = found.order[place], { answers, groups } = data.shelves[state.shelf], answer = answers[n];
  const row = make("div", "entry"), strip = make("span", "strip"), bar = make("span", "bar");
  row.id = `entry-${n}`;
  row.setAttribute("role", "option");
  row.setAttribute("aria-selected", String(n === state.answer));
  row.dataset.n = n;
  row.style.transform = `translateY(${place * ROW}px)`;
  if (answer.strip) { paint(bar, [...answer.strip].map((letter) => (letter.charCodeAt(0) - 77) / 12)); strip.append(bar); }
  const name = make("span", "name", plain(groups[answer.group].name));
  name.title = `group ${plain(groups[answer.group].name)}, answer ${plain(answer.name)}`;
  row.append(pip(answer), name, make("span", "figure-cell", say(answer.outcome)), strip, make("span", "figure-cell", whole(answer.tokens)), make("span", "figure-cell " + (answer.drop < 0 ? "blame" : ""), answer.drop === null ? "" : say(answer.drop)));
  return row;
}

/** The rows in sight, and a few more. */
function drawList() {
  const list = $(".list"), from = Math.max(0, Math.floor(list.scrollTop / ROW) - 4);
  const to = Math.min(found.order.length, from + Math.ceil((list.clientHeight || 600) / ROW) + 8);
  $(".track").style.height = `${found.order.length * ROW}px`;
  $(".track").replaceChildren(...Array.from({ length: to - from }, (_, i) => drawRow(from + i)));
  list.setAttribute("aria-activedescendant", `entry-${state.answer}`);
}

/** Choose an answer; its group is drawn. */
function choose(n, { scroll = true } = {}) {
  const group = data.shelves[state.shelf].answers[n].group, other = group !== state.group;
  Object.assign(state, { answer: n, group });
  if (other) showGroup();
  else markChosen();
  drawList();
  if (scroll) revealChosen();
}

/** Bring the chosen answer into view; the head of its group, where that is all there is of it. */
function revealChosen() {
  const shown = markChosen.frames?.find(({ node }) => node.classList.contains("chosen"));
  shown?.fill();
  reveal(shown?.node ?? $(".group-name"));
}

function move(by) {
  const place = found.order.indexOf(state.answer);
  const to = place < 0 ? 0 : Math.min(found.order.length - 1, Math.max(0, place + by));
  if (found.order[to] === undefined) return;
  const list = $(".list"), top = to * ROW;
  if (top < list.scrollTop) list.scrollTop = top;
  if (top + ROW > list.scrollTop + list.clientHeight) list.scrollTop = top + ROW - list.clientHeight;
  choose(found.order[to], { scroll: false });
  clearTimeout(move.later);
  move.later = setTimeout(revealChosen, 150); // so that one may run through long answers
}

function makeList() {
  for (const [selector, names] of [["#show", SHOW], ["#sort", SORT]]) $(selector).append(...Object.keys(names).map((name) => new Option(name)));
  for (const selector of ["#show", "#sort", "#of-group", "#shortest", "#longest", "#deepest"]) $(selector).addEventListener("input", find);
  $("#reverse").addEventListener("click", ({ currentTarget: button }) => { button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true")); find(); });
  const list = $(".list");
  list.addEventListener("scroll", drawList);
  list.addEventListener("click", ({ target }) => { const row = target.closest(".entry"); if (row) choose(Number(row.dataset.n)); });
  list.addEventListener("keydown", (event) => {
    const by = { ArrowUp: -1, ArrowDown: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity }[event.key];
    if (!by) return;
    event.preventDefault();
    move(by);
  });
}
