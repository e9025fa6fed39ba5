"use strict";
// The page: charts are drawn when they come into sight, share a cursor and a zoom within a run, tell their numbers, and follow light, width
// and paper.

const element = (name, attributes = {}, ...children) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
};

// ---- zoom and cursor

// Charts that share x: those over the time of one run; any other stands alone. `view`: the part in sight, null: all.
function grouped(charts) {
  const groups = new Map();
  for (const [id, chart] of Object.entries(charts)) {
    const key = isTime(chart) && chart.run !== null ? `run ${chart.run}` : `chart ${id}`;
    if (!groups.has(key)) groups.set(key, {key, charts: [], entries: [], view: null});
    groups.get(key).charts.push(chart);
  }
  for (const group of groups.values()) {
    group.full = extent(group.charts);
    for (const chart of group.charts) group.entries.push({chart, group, plot: null, painted: null});
  }
  return groups;
}

function zoom(group, view) {
  const [low, high] = group.full;
  group.view = view && [Math.max(view[0], low), Math.min(view[1], high)];
  const [min, max] = group.view ?? group.full;
  for (const {plot} of group.entries) plot?.setScale("x", {min, max});
}

function select(plot, group) {
  const {left, width} = plot.select;
  plot.setSelect({left: 0, top: 0, width: 0, height: 0}, false);
  if (width > 3) zoom(group, [plot.posToVal(left, "x"), plot.posToVal(left + width, "x")]);
}

// Arrows move the cursor, + and − zoom around it, Escape shows all.
function keys(event, entry) {
  const {plot, group} = entry;
  const last = plot.data[0].length - 1;
  const [low, high] = group.view ?? group.full;
  const at = plot.cursor.idx ?? plot.valToIdx(low);
  const step = event.shiftKey ? 10 : 1;
  const moves = {ArrowRight: at + step, ArrowLeft: at - step, Home: plot.valToIdx(low), End: plot.valToIdx(high)};
  const factor = {"+": 0.5, "-": 2}[event.key];
  if (event.key in moves) {
    const x = plot.data[0][Math.min(Math.max(moves[event.key], 0), last)];
    entry.told.setAttribute("aria-live", "polite");
    plot.setCursor({left: plot.valToPos(x, "x"), top: plot.over.clientHeight / 2});
  } else if (factor) {
    const middle = plot.data[0][at];
    zoom(group, [middle - (middle - low) * factor, middle + (high - middle) * factor]);
  } else if (event.key === "Escape") zoom(group, null);
  else return;
  event.preventDefault();
}

// ---- what the cursor is on, in words

function tell(plot, entry) {
  const {chart, group, told, legend} = entry;
  const index = plot.cursor.idx;
  const here = index !== null && index !== undefined && plot.cursor.left >= 0;
  const length = group.full[1];
  const x = here ? plot.data[0][index] : null;
  const says = [];
  if (here) says.push(chart.kind === "heat" ? heatAt(plot, chart, length) : worded(x, chart.x, length), ...markAt(chart, x));
  const place = here ? plot.posToVal(plot.cursor.left, "x") : null;
  if (here) for (const bands of entry.bands.values()) for (const band of bands) if (covers(plot, band, place)) says.push(bandWords(band));
  told.textContent = says.join(" · ");
  let column = 1;
  for (const [i, series] of chart.series.entries()) {
    const values = series.low ? [plot.data[column + 1][index], plot.data[column][index]] : [plot.data[column][index]];
    column += values.length;
    legend[i].textContent = here ? between(values, chart.y) : "";
  }
}

const between = (values, axis) => [...new Set(values.map((value) => worded(value, axis)))].join(" – ");

function covers(plot, band, x) {
  const near = 4 * (plot.scales.x.max - plot.scales.x.min) / Math.max(plot.over.clientWidth, 1);
  return x >= band.from - (band.to - band.from < near ? near : 0) && x <= Math.max(band.to, band.from + near);
}

const markAt = (chart, x) =>
  chart.marks.filter((mark) => mark.x === x).map((mark) => `${mark.label}: ${worded(mark.y, chart.y)}`);

function heatAt(plot, chart, length) {
  const [x, y] = [plot.posToVal(plot.cursor.left, "x"), plot.posToVal(plot.cursor.top, "y")];
  const column = chart.xs.findIndex((start) => x >= start && x < start + chart.step);
  const row = chart.ys.findIndex((edge, i) => y >= edge && y < chart.ys[i + 1]);
  if (column < 0 || row < 0) return "";
  const [, , count] = chart.cells.find(([a, b]) => a === column && b === row) ?? [0, 0, 0];
  const [start, low, high] = [chart.xs[column], chart.ys[row], chart.ys[row + 1]];
  const when = `${worded(start, chart.x, length)} – ${worded(start + chart.step, chart.x, length)}`;
  return `${when} · ${worded(low, chart.y)} – ${worded(high, chart.y)} · ${counted(count)} copies`;
}

// ---- legend

function legendsOf(entry) {
  const lines = element("ul", {class: "legend"});
  entry.legend = entry.chart.series.map((series, i) => {
    const value = element("span", {class: "value"});
    const button = element("button", {type: "button", "aria-pressed": "true", title: "show or hide"}, stroke(look(series, i), series.other), series.label);
    button.addEventListener("click", () => toggle(entry, i, button));
    lines.append(element("li", {}, button, value));
    return value;
  });
  const kinds = element("ul", {class: "legend kinds"});
  for (const kind of entry.bands.keys()) kinds.append(element("li", {}, swatch(kind), BAND_WORDS[kind] ?? kind));
  if (entry.chart.kind === "heat") kinds.append(shades(entry.chart));
  return [lines, kinds].filter((list) => list.children.length);
}

function shades({cells}) {
  const canvas = element("canvas", {width: 120, height: 12, "aria-hidden": "true"});
  const pen = canvas.getContext("2d");
  for (let x = 0; x < 120; x++) {
    pen.fillStyle = `rgb(${heatColour(x / 119).join(" ")})`;
    pen.fillRect(x, 0, 1, 12);
  }
  return element("li", {}, "1", canvas, `${counted(cells.reduce((most, [, , count]) => Math.max(most, count), 1))} copies`);
}

function toggle({chart, plot}, which, button) {
  const show = button.getAttribute("aria-pressed") !== "true";
  button.setAttribute("aria-pressed", String(show));
  const first = 1 + chart.series.slice(0, which).reduce((sum, series) => sum + (series.low ? 2 : 1), 0);
  plot.setSeries(first, {show});
  if (chart.series[which].low) plot.setSeries(first + 1, {show});
}

// ---- the table of numbers

function numbersOf({chart, group}) {
  const details = element("details", {class: "numbers"}, element("summary", {}, "Numbers"));
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) details.append(element("div", {class: "scroll"}, table(chart, group.full[1])));
  });
  return details;
}

// A cell is a value with its axis, or a text.
function cell(content, first, length) {
  const [value, axis] = Array.isArray(content) ? content : [content, null];
  const attributes = {...(first ? {scope: "row"} : {}), ...(axis ? {"data-value": value ?? ""} : {})};
  return element(first ? "th" : "td", attributes, axis ? worded(value, axis, length) : value);
}

function table(chart, length) {
  const [head, rows] = chart.kind === "heat" ? heatRows(chart) : [headOf(chart), rowsOf(chart)];
  return element("table", {},
    element("caption", {}, chart.title),
    element("thead", {}, element("tr", {}, ...head.map((text) => element("th", {scope: "col"}, text)))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((content, i) => cell(content, i === 0, length))))));
}

const headOf = (chart) => [
  chart.x.label, ...chart.series.flatMap(({label, low}) => (low ? [`${label}, least`, `${label}, most`] : [label])),
  ...(chart.marks.length ? [chart.y.label, "which", "outcome"] : []),
];

function rowsOf(chart) {
  const [marks, empty] = [chart.marks.length ? 3 : 0, headOf(chart).length - 1];
  const rows = chart.xs.map((x, i) => [
    [x, chart.x], ...chart.series.flatMap(({low, values}) => [...(low ? [[low[i], chart.y]] : []), [values[i], chart.y]]), ...Array(marks).fill(""),
  ]);
  return [...rows, ...chart.marks.map((mark) => [[mark.x, chart.x], ...Array(empty - 3).fill(""), [mark.y, chart.y], mark.label, mark.outcome])];
}

// Of each block: how many, and between which latencies.
function heatRows(chart) {
  const blocks = chart.xs.map((x) => ({x, count: 0, low: null, high: null}));
  for (const [x, y, count] of chart.cells) {
    const block = blocks[x];
    block.count += count;
    block.low = Math.min(block.low ?? Infinity, chart.ys[y]);
    block.high = Math.max(block.high ?? 0, chart.ys[y + 1]);
  }
  const plain = {unit: "count"};
  const rows = blocks.map(({x, count, low, high}) => [[x, chart.x], [count, plain], [low, chart.y], [high, chart.y]]);
  return [[chart.x.label, "copies", "from", "to"], rows];
}

// ---- drawing

const PAPER = 680;

function draw(entry) {
  if (entry.plot || entry.failed) return;
  const {chart, figure} = entry;
  try {
    entry.told = element("output", {class: "told", "aria-live": "off"});
    const box = element("div", {class: "plot", role: "img", tabindex: "0", "aria-label": `${chart.title}. ${chart.summary}`});
    const below = element("div", {class: "below"}, ...legendsOf(entry), entry.told);
    figure.append(element("p", {class: "axis"}, `↑ ${labelled(chart.y)}`), box, below, numbersOf(entry));
    entry.plot = new uPlot(options(entry, box.clientWidth || PAPER), columns(chart), box);
    box.addEventListener("keydown", (event) => keys(event, entry));
    resized.observe(box);
    figure.classList.add("drawn");
  } catch (error) {
    entry.failed = error;
    figure.append(element("p", {class: "absent"}, `This chart could not be drawn: ${error.message}`));
    console.error(`${entry.id}: ${error.stack}`);
  }
}

// Anew, if it was drawn: its lines are others.
function again(entry) {
  if (!entry.plot) return;
  resized.unobserve(entry.figure.querySelector(".plot"));
  entry.plot.destroy();
  entry.plot = entry.drawn = null;
  for (const part of [...entry.figure.children].slice(1)) part.remove();
  draw(entry);
}

function fit(entry, width) {
  if (entry.plot && width > 0 && width !== entry.plot.width) entry.plot.setSize({width, height: entry.plot.height});
}

const entries = {};
const byBox = (box) => entries[box.closest("figure").dataset.chart];
let printing = false;
const resized = new ResizeObserver((changes) => {
  if (!printing) for (const {target} of changes) fit(byBox(target), target.clientWidth);
});
const seen = new IntersectionObserver((changes) => {
  for (const {target, isIntersecting} of changes) if (isIntersecting) draw(entries[target.dataset.chart]);
}, {rootMargin: "400px"});

function repaint() {
  readTheme();
  for (const {plot} of Object.values(entries)) plot?.redraw(false, true);
}

// On paper all charts are seen, as wide as a sheet and dark on light.
function print(paper) {
  printing = paper;
  document.documentElement.classList.toggle("paper", paper);
  if (paper) Object.values(entries).forEach(draw);
  for (const entry of Object.values(entries)) fit(entry, paper ? PAPER : entry.figure.querySelector(".plot")?.clientWidth);
  repaint();
}

function kinds(bands) {
  const found = new Map();
  for (const band of [...bands].sort((a, b) => a.from - b.from)) {
    if (!found.has(band.kind)) found.set(band.kind, []);
    found.get(band.kind).push(band);
  }
  return found;
}

function start() {
  const data = JSON.parse(document.getElementById("data").textContent);
  readTheme();
  startBoard(data);
  const bands = new Map(Object.entries(data.bands).map(([run, list]) => [run, kinds(list)]));
  const names = new Map(Object.entries(data.charts).map(([id, chart]) => [chart, id]));
  for (const {entries: members} of grouped(data.charts).values()) {
    for (const entry of members) {
      const id = names.get(entry.chart);
      const figure = document.querySelector(`figure[data-chart="${CSS.escape(id)}"]`);
      if (!figure) continue;
      Object.assign(entry, {id, figure, bands: (isTime(entry.chart) && bands.get(entry.chart.run)) || new Map()});
      entries[id] = entry;
      seen.observe(figure);
    }
  }
  startCompare(data);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));
  window.loadtest = {charts: entries, draw: () => Object.values(entries).forEach(draw), ready: performance.now()};
}

start();
