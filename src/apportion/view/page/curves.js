// ---- Curves over training, by uPlot ---------------------------------------------------------------------------------

const SECTIONS = [
  { title: "Rewards", curves: [
    { key: "pass_rate", name: "Pass rate", about: "answers of the training batch", percent: true },
    { key: "outcome_mean", name: "Outcome", about: "mean of the scored answers" },
    { key: /^reward_(?!outcome$)/, name: "Reward part", about: "mean over answers" },
    { key: "process_outcome_correlation", name: "Steps with outcome", about: "correlation of step and outcome reward" },
    { key: "zero_variance_groups", name: "Groups all alike", about: "of one outcome", percent: true },
    { key: "mean_abs_advantage", name: "|Advantage|", about: "mean over trained tokens", zero: true },
  ] },
  { title: "Policy", curves: [
    { key: "kl", name: "KL", about: "to the start, nats a token", zero: true },
    { key: "entropy", name: "Entropy", about: "nats a token", zero: true },
    { key: "grad_norm", name: "Gradient norm", about: "before clipping", zero: true },
    { key: "clip_fraction_high", name: "Clipped", about: "tokens over the clip range", percent: true, band: ["clip_fraction_low"] },
    { key: "length_p50", name: "Answer length", about: "median, 10 to 90 %", band: ["length_p10", "length_p90"], zero: true },
    { key: "truncated", name: "Cut off", about: "answers that did not end", percent: true },
  ] },
  { title: "Values", curves: [
    { key: "explained_variance", name: "Explained variance", about: "of returns, by the critic's values" },
    { key: "critic_loss", name: "Critic loss", about: "squared error of values", zero: true },
    { key: "value_gap", name: "Gap to Monte Carlo", about: "root mean square, spot checks", zero: true },
    { key: "value_bias", name: "Bias against Monte Carlo", about: "mean difference, spot checks" },
    { key: "steps_per_rollout", name: "Steps", about: "an answer", zero: true },
  ] },
  { title: "Cost", curves: [
    { key: "tokens_per_second", name: "Tokens a second", about: "generated, of the whole step", zero: true },
  ] },
];
const steps = data.curves.step;
const charts = [];
let smooth = false;

/** The sections with the curves that there are, each named; what no section knows comes last. */
function sections() {
  const left = new Set(Object.keys(data.curves));
  for (const key of ["step", "reward_outcome"]) left.delete(key);
  const found = SECTIONS.map(({ title, curves }) => ({ title, curves: curves.flatMap((curve) => {
    const keys = [...left].filter((key) => (curve.key instanceof RegExp ? curve.key.test(key) : curve.key === key));
    for (const key of [...keys, ...(curve.band ?? [])]) left.delete(key);
    return keys.map((key) => ({ ...curve, key, name: curve.key instanceof RegExp ? `${curve.name} ${key.slice("reward_".length)}` : curve.name }));
  }) }));
  const others = [...left].map((key) => ({ key, name: key, about: "" }));
  return [...found, { title: "Other figures", curves: others, folded: found.some(({ curves }) => curves.length) }].filter(({ curves }) => curves.length);
}

function smoothed(values) {
  const reach = Math.max(1, Math.round(values.length / 40));
  return values.map((value, i) => {
    const near = known(values.slice(Math.max(0, i - reach), i + reach + 1));
    return value === null ? null : near.reduce((a, b) => a + b, 0) / near.length;
  });
}

/** The lowest and highest of an axis: zero is on it where it means something. */
function range(curve, low, high) {
  if (low === null || high === null) return [0, 1];
  if (curve.zero || curve.percent) low = Math.min(0, low);
  if (curve.percent) high = Math.max(0.1, high);
  if (low === high) { const pad = Math.abs(low) * 0.1 || 1; return [curve.zero || curve.percent ? low : low - pad, high + pad]; }
  return [low, high + (high - low) * 0.04];
}

function plot(chart) {
  const { curve, box } = chart;
  chart.plot?.destroy();
  const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const values = data.curves[curve.key], band = (curve.band ?? []).map((key) => data.curves[key] ?? null);
  const grounded = band.length === 2 && band.every(Boolean);
  const line = { stroke: ink("--line"), width: 1.5, points: { show: known(values).length < 2, size: 7, fill: ink("--line") } };
  const series = [{}];
  const columns = [steps];
  if (grounded) {
    columns.push(band[1], band[0]);
    for (const edge of band) series.push({ stroke: "transparent", width: 0, points: { show: false } });
  } else if (band[0]) {
    columns.push(band[0]);
    series.push({ stroke: ink("--faint"), width: 1, dash: [3, 3], points: { show: false } });
  }
  if (smooth) { columns.push(values); series.push({ stroke: ink("--rule"), width: 1, points: { show: false } }); }
  columns.push(smooth ? smoothed(values) : values);
  series.push(line);
  chart.column = columns.length - 1;
  const font = `11px ${ink("--sans")}`;
  const axis = { stroke: ink("--faint"), font, ticks: { show: false }, grid: { stroke: ink("--hair"), width: 1 } };
  const spoken = (_, ticks) => ticks.map((tick) => (curve.percent ? `${Number((tick * 100).toPrecision(3))} %` : say(tick)));
  chart.plot = new uPlot({
    width: box.clientWidth || 240, height: 128, padding: [6, 8, 0, 0],
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, sync: { key: "steps" }, points: { size: 7, fill: ink("--line"), stroke: ink("--paper"), width: 1.5, show: (u, i) => (i === chart.column ? make("div") : null) } },
    scales: { x: { time: false, range: (_, low, high) => (low === high ? [low - 1, high + 1] : [low, high]) }, y: { range: (_, low, high) => range(curve, low, high) } },
    axes: [{ ...axis, size: 22, space: 45, grid: { show: false }, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5] }, { ...axis, size: 48, space: 26, gap: 4, values: spoken }],
    bands: grounded ? [{ series: [1, 2], fill: ink("--band") }] : [],
    series,
    hooks: { setCursor: [(u) => told(chart, u.cursor.idx)] },
  }, columns, box);
}

/** Say the figure under the cursor, or else the last. */
function told(chart, index) {
  const values = data.curves[chart.curve.key], i = index ?? steps.length - 1;
  chart.output.textContent = (index === null || index === undefined ? "" : `step ${steps[i]}: `) + say(values[i], chart.curve);
}

function addChart(parent, curve) {
  const values = known(data.curves[curve.key]);
  const [figure, caption, output, box] = [make("figure", "chart"), make("figcaption"), make("output"), make("div", "plot")];
  box.tabIndex = 0;
  box.setAttribute("role", "img");
  box.setAttribute("aria-label", `${curve.name}: from ${say(values[0], curve)} to ${say(values.at(-1), curve)}`);
  caption.append(make("strong", "", curve.name), output);
  figure.append(caption, make("div", "about", curve.about), box);
  parent.append(figure);
  const chart = { curve, box, output };
  let here = steps.length - 1;
  box.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!move) return;
    event.preventDefault();
    here = Math.min(steps.length - 1, Math.max(0, here + move));
    chart.plot.setCursor({ left: chart.plot.valToPos(steps[here], "x"), top: 10 }, true, true);
  });
  box.addEventListener("blur", () => chart.plot.setCursor({ left: -10, top: -10 }, true, true));
  charts.push(chart);
  told(chart, null);
}

function plotAll() {
  for (const chart of charts) if (chart.box.clientWidth) plot(chart);
}

function makeCurves() {
  if (!$("#curves")) return;
  const note = $("#curves-note");
  if (!steps.length) { note.textContent = "No training step is logged yet."; return; }
  if (steps.length < data.steps_total) note.textContent = `${steps.length} of ${data.steps_total} steps are drawn, evenly spaced.`;
  for (const { title, curves, folded } of sections()) {
    const part = make(folded ? "details" : "div", "curve-section"), row = make("div", "charts");
    part.append(make(folded ? "summary" : "h3", "", folded ? `${title} (${curves.length})` : title), row);
    part.style.flex = folded ? "" : `${curves.length} 1 ${curves.length * 12}rem`;
    if (folded) part.addEventListener("toggle", plotAll);
    $(".curves").append(part);
    for (const curve of curves) addChart(row, curve);
  }
  if (steps.length >= 20) {
    $("#smooth").hidden = false;
    $("#smooth input").addEventListener("change", (event) => { smooth = event.target.checked; plotAll(); });
  }
  plotAll();
  addEventListener("resize", plotAll);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", plotAll);
}
