// ---- The page ------------------------------------------------------------------------------------------------------

function showLegend() {
  const limit = data.limits[state.colour];
  $(".scale").hidden = $(".scale.words").hidden = state.colour === null;
  $(".colour-name").textContent = COLOURS[state.colour] ?? "";
  $(".limit.low").textContent = limit ? `≤ ${say(-limit)}` : "0";
  $(".limit.high").textContent = limit ? `≥ ${say(limit, { sign: true })}` : "0";
  const names = Object.keys(data.limits);
  choice($(".colours"), names.map((name) => SHORT[name]), names.indexOf(state.colour), (n) => { state.colour = names[n]; showLegend(); showGroup(); });
  $(".colours").hidden = names.length < 2;
}

function showShelf(s) {
  const shelf = data.shelves[s];
  Object.assign(state, { shelf: s, group: shelf.strongest, answer: shelf.answers.findIndex(({ group }) => group === shelf.strongest) });
  const names = data.shelves.map(({ name }) => name);
  if (names[0] !== null) {
    choice($(".shelves"), names, s, showShelf);
    $(".shelves").prepend(make("span", "", "training step"));
  }
  const held = shelf.groups.reduce((sum, group) => sum + group.held, 0), { answers } = shelf;
  const notes = [];
  if (data.shelves.length < data.ledgers_total) notes.push(`This page holds ${data.shelves.length} of ${data.ledgers_total} saved ledgers.`);
  if (held < answers.length) notes.push(`Text and credit of ${whole(held)} of ${whole(answers.length)} answers are in this page, those of the groups with the largest mean |advantage|; the others are in the list only.`);
  if (data.limits[state.colour] === 0) notes.push(`Here every ${SHORT[state.colour]} is 0.`);
  notes.push(`A filled dot is an answer that ${GRADED ? "scored above the mean of its group" : "passed"}. Point at a token, or move with the arrow keys.`);
  $("#answers-note").textContent = notes.join(" ");
  find();
  $(".list").scrollTop = Math.max(0, found.order.indexOf(state.answer)) * ROW;
  showGroup();
}

if (!data.shelves.length) $("#answers-note").textContent = "No ledger is saved yet.";
else {
  $(".legend").hidden = $(".desk").hidden = false;
  makeList();
  $("#numbers").addEventListener("change", ({ target }) => { state.numbers = target.checked; showGroup(); });
  showLegend();
  showShelf(data.shelves.length - 1);
}
makeCurves();
