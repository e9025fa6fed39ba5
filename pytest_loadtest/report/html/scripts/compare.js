"use strict";
// Two runs over each other: the lines of another run of the page, or of the baseline, in the charts of a run.

// A chart with the lines of another one; `name`: of the other run. A time at which only one was measured is no gap in the lines of the other.
function overlaid(chart, other, name) {
  const xs = [...new Set([...chart.xs, ...other.xs])].sort((a, b) => a - b);
  const place = new Map(xs.map((x, i) => [x, i]));
  const spread = (own, values) => {
    const all = Array(xs.length).fill(undefined);
    own.xs.forEach((x, i) => { all[place.get(x)] = values[i]; });
    return all;
  };
  const lines = (own, change) => own.series.map((series, index) => ({
    ...series, ...change(series), index, values: spread(own, series.values), ...(series.low ? {low: spread(own, series.low)} : {}),
  }));
  const series = [...lines(chart, () => ({})), ...lines(other, ({label}) => ({label: `${label}, ${name}`, other: true}))];
  return {...chart, xs, series, summary: `${chart.summary} With the lines of ${name}.`};
}

const suffix = (id, run) => id.slice(run.length + 1);

// The charts that lie over those of a run, by the end of their names.
function othersOf(data, choice) {
  if (choice === "baseline") return (run) => data.baselines[run];
  const own = Object.entries(data.charts).filter(([id]) => id.startsWith(`${choice}-`));
  const charts = Object.fromEntries(own.map(([id, chart]) => [suffix(id, choice), chart]));
  return () => charts;
}

// Draws the charts of a run again, with the lines of the chosen one, or without.
function compare(data, run, choice, name) {
  const others = choice ? othersOf(data, choice)(run) : {};
  const members = Object.values(entries).filter(({id}) => id.startsWith(`${run}-`));
  for (const entry of members) {
    const own = data.charts[entry.id];
    const other = others[suffix(entry.id, run)];
    const fits = other && own.kind !== "heat" && own.xs.length > 0 && other.kind === own.kind;
    entry.chart = fits ? overlaid(own, other, name) : own;
  }
  for (const group of new Set(members.map((entry) => entry.group))) {
    group.full = extent(group.entries.map((entry) => entry.chart));
    group.view = null;
  }
  members.forEach(again);
}

// A choice for each run that has charts and something to compare with; the baseline is chosen at first.
function startCompare(data) {
  const articles = [...document.querySelectorAll("article.run")];
  const names = new Map(articles.map((article) => [article.id, article.dataset.name]));
  for (const {id} of articles) {
    const place = document.getElementById(`${id}-chapter-time-title`);
    const choices = [...names].filter(([run]) => run !== id && data.charts[`${run}-rates`]);
    if (data.baselines[id]) choices.unshift(["baseline", "the baseline"]);
    if (!place || !data.charts[`${id}-rates`] || !choices.length) continue;
    const options = choices.map(([value, name]) => element("option", {value}, name));
    const select = element("select", {}, element("option", {value: ""}, "no other run"), ...options);
    const chosen = () => compare(data, id, select.value, select.selectedOptions[0].textContent);
    select.addEventListener("change", chosen);
    place.after(element("p", {class: "compare"}, element("label", {}, "Charts with the lines of ", select)));
    if (data.baselines[id]) {
      select.value = "baseline";
      chosen();
    }
  }
}
