"use strict";
// A chart of the page's data → the options and columns of a uPlot.

const HEIGHTS = {lines: 220, bars: 220, curve: 300, heat: 300}; // charts that stand side by side are equally high
const Y_SIZE = 76;
const isTime = (chart) => chart.x.unit === "s" && chart.x.scale === "linear";
const distribution = (axis) => (axis.scale === "linear" ? {distr: 1} : {distr: 3, log: 10});

// ---- columns

// Marks alone are columns too, so that the cursor finds them.
function columns(chart) {
  if (chart.kind === "heat") return [[...chart.xs, chart.xs.at(-1) + chart.step], Array(chart.xs.length + 1).fill(null)];
  if (chart.xs.length) return [chart.xs, ...chart.series.flatMap(({values, low}) => (low ? [values, low] : [values]))];
  const marks = [...chart.marks].sort((a, b) => a.x - b.x);
  return [marks.map(({x}) => x), marks.map(({y}) => y)];
}

// ---- ranges

function reach(chart) {
  const bounds = isTime(chart) ? [] : chart.bounds.map((bound) => bound.x);
  const xs = [...chart.xs, ...chart.marks.map((mark) => mark.x), ...bounds].filter((x) => x !== null);
  if (chart.kind === "heat" && xs.length) xs.push(xs.at(-1) + chart.step);
  return xs.length ? [Math.min(...xs), Math.max(...xs)] : null;
}

// All that there is along x; not quite to the edge where there are marks.
function extent(charts) {
  const reaches = charts.map(reach).filter(Boolean);
  const [low, high] = [Math.min(...reaches.map(([a]) => a)), Math.max(...reaches.map(([, b]) => b))];
  if (!reaches.length) return [0, 1];
  const [{x, marks, kind}] = charts;
  if (x.scale === "percentile") return [1, Math.max(high, 10)];
  if (x.scale === "log") return low === high ? [low / 2, high * 2] : [low / 1.1, high * 1.1];
  const room = low === high ? 0.5 : !isTime(charts[0]) && (marks.length || kind === "bars") ? (high - low) * 0.06 : 0;
  return [low - room, high + room];
}

// Objectives are seen too, as long as they do not make the lines flat.
function range(chart) {
  const bounds = chart.bounds.map((bound) => bound.y).filter((y) => y !== null);
  const own = chart.kind === "heat" ? chart.ys : chart.marks.map((mark) => mark.y);
  const room = chart.marks.length ? 0.4 : 0.1;
  return (plot, low, high) => {
    const known = [low, high, ...own].filter((value) => value !== null);
    const top = Math.max(...known);
    if (chart.y.scale === "log") {
      const near = known.length ? bounds.filter((y) => y <= 30 * top && y >= Math.min(...known) / 30) : bounds;
      const positive = [...known, ...near].filter((value) => value > 0);
      if (!positive.length) return [1, 10];
      return uPlot.rangeLog(Math.min(...positive) * (1 - room), Math.max(...positive) * (1 + room), 10, false);
    }
    if (!known.length) return [0, 1];
    const highest = Math.max(top, ...bounds.filter((y) => y <= 4 * top));
    const lowest = Math.min(0, ...known);
    if (highest === lowest) return [lowest, lowest + 1];
    return [lowest, highest + (highest - lowest) * 0.08];
  };
}

// ---- axes

function axes(chart) {
  const line = {stroke: () => theme.grid, width: 1};
  const common = {stroke: () => theme.ink, font: theme.font, labelFont: theme.font, grid: line, ticks: {...line, size: 5}, labelSize: 20, gap: 4};
  return [
    {...common, ...marking(chart.x), label: chart.x.label, space: 76, size: 32},
    {...common, ...marking(chart.y), space: 34, size: Y_SIZE},
  ];
}

// Above the axis, where a long one has room.
const labelled = ({label, unit}) => (["msg/s", "cores"].includes(unit) && !/per second|cores/.test(label) ? `${label}, ${unit}` : label);

function marking(axis) {
  if (axis.scale === "percentile") {
    return {splits: (plot, i, low, high) => quantiles(low, high), values: (plot, splits) => splits.map(quantile), filter: (plot, splits) => splits};
  }
  if (axis.scale === "log") {
    const values = (plot, splits) => splits.map((value) => (value === null ? "" : short(value, axis)));
    return {grid: {stroke: () => theme.grid, width: 1, filter: decades}, values};
  }
  return {incrs: steps(axis), values: (plot, splits, i, space, step) => ticks(splits, axis, step)};
}

// Lines at the powers of ten alone, where there are several.
function decades(plot, splits) {
  const tens = splits.map((value) => (Number.isInteger(Number(Math.log10(value).toFixed(9))) ? value : null));
  return tens.filter((value) => value !== null).length > 2 ? tens : splits;
}

// 10 ms and not 10.0 ms, for the round numbers of a log axis.
const short = (value, axis) => worded(value, axis).replace(/\.0+(?= )/, "").replace(/(\.\d)0(?= )/, "$1").replace(/ msg\/s$/, "");

// ---- series

function lines(chart) {
  return chart.series.flatMap((series, i) => {
    const [colour, dash] = look(series, i);
    const one = {
      label: series.label, stroke: () => inkOf(series, i), dash, width: series.other ? 1 : 1.75, ...shape(chart, i, colour),
    };
    return series.low ? [one, {...one, label: `${series.label}, least`, width: 1}] : [one];
  });
}

// Steps over time, so that each stands over its own second; otherwise bars.
function shape(chart, i, colour) {
  const few = chart.xs.length <= 30;
  const seen = (plot, n) => (few ? null : alone(plot.data[n]));
  if (chart.kind !== "bars") return {points: {show: few, filter: seen, size: 5, fill: () => theme[colour]}};
  const filled = {fill: () => `${theme[colour]}73`, points: {show: false}};
  if (isTime(chart) || chart.series.length > 2) return {...filled, paths: uPlot.paths.stepped({align: 1}), width: 1};
  const align = chart.series.length === 1 ? 0 : [-1, 1][i];
  return {...filled, paths: uPlot.paths.bars({size: [align ? 0.4 : 0.8, 60, 1], align}), dash: []};
}

// A line of one point is seen as a point.
const alone = (values) => [...values.keys()].filter((i) => values[i] != null && values[i - 1] == null && values[i + 1] == null);

// Between the largest and the smallest of reduced points.
function filled(chart) {
  let place = 0;
  return chart.series.flatMap((series, i) => {
    place += series.low ? 2 : 1;
    const [colour] = look(series, i);
    return series.low ? [{series: [place - 1, place], fill: () => `${theme[colour]}4d`}] : [];
  });
}

function options(entry, width) {
  const {chart, group} = entry;
  const unseen = {label: "", paths: () => null, points: {show: false}};
  const own = chart.kind === "heat" ? [unseen] : chart.xs.length ? lines(chart) : [unseen];
  return {
    width, height: HEIGHTS[chart.kind], padding: [12, 30, 0, 0], legend: {show: false},
    scales: {
      x: {time: false, ...distribution(chart.x), range: () => group.view ?? group.full},
      y: {...distribution(chart.y), range: range(chart)},
    },
    axes: axes(chart), series: [{label: chart.x.label}, ...own], bands: chart.kind === "heat" ? [] : filled(chart),
    cursor: {
      drag: {x: true, y: false, setScale: false, dist: 4}, y: chart.kind === "heat" || chart.kind === "curve",
      points: {size: 8},
      sync: {key: group.key, scales: ["x", null], filters: {pub: (type) => type === "mousemove" || type === "mouseleave", sub: () => true}},
      bind: {dblclick: () => () => zoom(group, null)},
    },
    hooks: {
      drawClear: [(plot) => drawBands(plot, entry.bands)],
      draw: [(plot) => drawOver(plot, entry)],
      setSelect: [(plot) => select(plot, group)],
      setCursor: [(plot) => tell(plot, entry)],
    },
  };
}

function drawOver(plot, entry) {
  const {chart, bands} = entry;
  const labels = new Labels(plot);
  if (chart.kind === "heat") drawHeat(plot, chart);
  const bounds = drawBounds(plot, chart.bounds);
  const marks = drawMarks(plot, labels, chart.marks);
  nameBounds(plot, labels, bounds);
  nameBands(plot, labels, bands);
  entry.drawn ??= performance.now();
  entry.painted = {bounds, marks, bands: [...bands].flatMap(([kind, spans]) => (inSight(plot, spans).length ? [kind] : []))};
}
