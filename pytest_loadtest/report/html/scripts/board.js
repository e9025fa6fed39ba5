"use strict";
// The first screen: small lines in the rows of runs, and a filter by outcome and text.

const SPARK = {width: 120, height: 26};
const WRONG = new Set(["restart", "stall", "blocked", "lost"]);

// The line of a run with this role over its time: the largest of its values where a long run was reduced.
function lineOf(charts, run, role) {
  for (const chart of Object.values(charts)) {
    const series = chart.run === run && isTime(chart) ? chart.series.find((one) => one.role === role) : null;
    if (series) return {xs: chart.xs, values: series.values};
  }
  return {xs: [], values: []};
}

// Without the drain: until the last second in which messages were offered.
function phaseLine(charts, run, role) {
  const offered = lineOf(charts, run, "offered");
  const end = offered.xs[offered.values.findLastIndex((value) => value > 0)] ?? Infinity;
  const {xs, values} = lineOf(charts, run, role);
  const seen = xs.filter((second) => second <= end);
  return {xs: seen, values: values.slice(0, seen.length)};
}

// The time of a run in which something went wrong is shaded, two pixels wide at least.
function spark(svg, {xs, values}, bands) {
  const known = values.filter((value) => value !== null);
  const [end, top] = [Math.max(xs.at(-1), 1), Math.max(...known, 1)];
  const x = (second) => Math.min(Math.max(second / end, 0), 1) * SPARK.width;
  const y = (value) => SPARK.height - 1 - (value / top) * (SPARK.height - 3);
  const wrong = bands.filter((band) => WRONG.has(band.kind)).map((band) => {
    const [from, to] = [x(band.from), Math.max(x(band.to), x(band.from) + 2)];
    return `M${from.toFixed(1)} 0H${to.toFixed(1)}V${SPARK.height}H${from.toFixed(1)}Z`;
  });
  let pen = "M";
  const steps = xs.map((second, i) => {
    if (values[i] === null) return (pen = "M", "");
    const step = `${pen}${x(second).toFixed(1)} ${y(values[i]).toFixed(1)}`;
    pen = "L";
    return step;
  });
  for (const [name, d] of [["wrong", wrong.join("")], ["line", steps.join("")]]) {
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("class", name);
    path.setAttribute("d", d);
    svg.append(path);
  }
}

function drawSparks({charts, bands}) {
  for (const svg of document.querySelectorAll("svg.spark")) {
    const {run, role} = svg.dataset;
    const line = phaseLine(charts, run, role);
    if (line.xs.length) spark(svg, line, bands[run] ?? []);
  }
}

// ---- the filter

const wordsOf = (row) => row.textContent.toLowerCase() + (row.querySelector("a")?.title ?? "").toLowerCase();
const outcomeOf = (row) => row.querySelector(".outcome").dataset.outcome;

function filterBar(rows, apply) {
  const text = element("input", {type: "search", placeholder: "/ filter", "aria-label": "Filter the runs by text"});
  const outcomes = [...new Set(rows.map(outcomeOf))];
  const buttons = outcomes.map((outcome) => {
    const count = rows.filter((row) => outcomeOf(row) === outcome).length;
    const label = element("span", {class: "outcome", "data-outcome": outcome}, `${outcome} ${count}`);
    return element("button", {type: "button", "aria-pressed": "true", "data-outcome": outcome}, label);
  });
  for (const button of buttons) button.addEventListener("click", () => {
    button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
    apply();
  });
  text.addEventListener("input", apply);
  const shown = element("output", {"aria-live": "polite"});
  return {text, buttons, shown, box: element("div", {class: "filter", role: "search"}, ...(outcomes.length > 1 ? buttons : []), text, shown)};
}

// "/" goes to the filter, the arrows from run to run, Escape shows all.
function boardKeys(event, bar, rows, apply) {
  const links = rows.filter((row) => !row.hidden).map((row) => row.querySelector("a"));
  const here = links.indexOf(document.activeElement);
  const inText = document.activeElement === bar.text;
  const step = {ArrowDown: 1, ArrowUp: -1}[event.key];
  if (event.key === "/" && !inText) bar.text.focus();
  else if (event.key === "Escape" && (inText || here >= 0)) {
    bar.text.value = "";
    for (const button of bar.buttons) button.setAttribute("aria-pressed", "true");
    apply();
  } else if (step && (inText || here >= 0)) links[Math.min(Math.max(here + step, 0), links.length - 1)]?.focus();
  else return;
  event.preventDefault();
}

function startBoard(data) {
  drawSparks(data);
  const table = document.querySelector("#overview table");
  const rows = [...(table?.tBodies[0].rows ?? [])];
  if (rows.length < 2) return;
  const apply = () => {
    const words = bar.text.value.toLowerCase().split(/\s+/);
    const pressed = new Set(bar.buttons.filter((one) => one.getAttribute("aria-pressed") === "true").map((one) => one.dataset.outcome));
    for (const row of rows) row.hidden = !pressed.has(outcomeOf(row)) || !words.every((word) => wordsOf(row).includes(word));
    const left = rows.filter((row) => !row.hidden).length;
    bar.shown.textContent = left < rows.length ? `${left} of ${rows.length} runs` : "";
  };
  const bar = filterBar(rows, apply);
  table.closest(".scroll").before(bar.box);
  document.addEventListener("keydown", (event) => boardKeys(event, bar, rows, apply));
}
