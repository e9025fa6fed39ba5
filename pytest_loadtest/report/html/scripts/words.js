"use strict";
// How numbers are worded, as values/quantities.py words them, and where an axis has its ticks.

const significant = (value) => value.toFixed(Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2);

// Unit, its size, and from what value on it is used, where that is not its size.
const DURATIONS = [["h", 3600e9, 7200e9], ["min", 60e9, 120e9], ["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]];
const SIZES = [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10], ["B", 1]];
const COUNTS = [["G", 1e9], ["M", 1e6], ["k", 1e3, 1e4], ["", 1]];
const fitting = (units, value) => units.find(([, size, from = size]) => Math.abs(value) >= from) ?? units.at(-1);

function scaled(units, value) {
  const [unit, size] = fitting(units, value);
  return `${size === 1 ? value.toFixed(0) : significant(value / size)} ${unit}`;
}

const spaced = (digits) => digits.replace(/\B(?=(\d{3})+$)/g, " ");

function counted(count) {
  if (Math.abs(count) >= 1e4) return scaled(COUNTS, count);
  return Number.isInteger(count) ? spaced(String(count)) : count.toFixed(1);
}

const two = (number) => String(number).padStart(2, "0");

// A time in the run, of a run so long (s): 12.5 s, 2:05 min, 13:00:05 h.
function instant(seconds, length) {
  if (length <= 120) return `${Number(seconds.toFixed(3))} s`;
  const whole = Math.round(seconds);
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  return length <= 7200 ? `${Math.floor(whole / 60)}:${two(rest)} min` : `${hours}:${two(minutes)}:${two(rest)} h`;
}

function quantile(inverse) {
  const share = 100 * (1 - 1 / inverse);
  return `${Number(share.toFixed(Math.max(0, Math.ceil(Math.log10(inverse)) - 1)))} %`;
}

// A value of an axis in words; `length`: the extent of a time axis in s.
function worded(value, axis, length = 0) {
  if (value === null || value === undefined) return "not measured";
  if (axis.scale === "percentile") return quantile(value);
  switch (axis.unit) {
    case "ns": return scaled(DURATIONS, value);
    case "s": return instant(value, length);
    case "msg/s": return `${counted(value)} msg/s`;
    case "B": return scaled(SIZES, value);
    case "B/s": return `${scaled(SIZES, value)}/s`;
    case "share": return `${Number((100 * value).toPrecision(3))} %`;
    case "cores": return `${Number(value.toPrecision(3))} cores`;
    default: return counted(value);
  }
}

// ---- ticks

const powers = (base, steps, from, to) =>
  Array.from({length: to - from + 1}, (_, i) => steps.map((step) => step * base ** (from + i))).flat();
const DECIMAL_STEPS = powers(10, [1, 2, 5], -6, 15).map((step) => Number(step.toPrecision(1)));
const BINARY_STEPS = [0.25, 0.5, ...powers(2, [1], 0, 50)];
const CLOCK_STEPS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200,
  10800, 21600, 43200, 86400, 172800, 604800];

function steps(axis) {
  if (axis.unit === "s") return CLOCK_STEPS;
  if (axis.unit === "count") return DECIMAL_STEPS.filter((step) => step >= 1); // there is no half a message
  return axis.unit === "B" || axis.unit === "B/s" ? BINARY_STEPS : DECIMAL_STEPS;
}

const decimals = (step) => (step >= 1 ? 0 : Math.ceil(-Math.log10(step) - 1e-9));

// All ticks of a linear axis in one unit, with as many decimals as their step asks for.
function ticks(splits, axis, step) {
  const top = Math.max(...splits.map(Math.abs));
  if (axis.unit === "s") return clock(splits, top, step);
  const units = axis.unit === "ns" ? DURATIONS.slice(2) : axis.unit === "B" || axis.unit === "B/s" ? SIZES : COUNTS;
  const [unit, size] = axis.unit === "share" ? ["%", 0.01] : fitting(units, top);
  const named = axis.unit === "B/s" ? `${unit}/s` : unit;
  const shown = (value) => spaced((value / size).toFixed(decimals(step / size)));
  return splits.map((value) => (value === 0 ? "0" : `${shown(value)} ${named}`.trim()));
}

function clock(splits, top, step) {
  if (top <= 120) return splits.map((value) => `${value.toFixed(decimals(step))} s`);
  if (top <= 7200 && step % 60 === 0) return splits.map((value) => `${value / 60} min`);
  if (step % 3600 === 0) return splits.map((value) => `${value / 3600} h`);
  const words = splits.map((value) => instant(value, top));
  return step % 60 === 0 ? words.map((text) => text.replace(/:\d\d h$/, " h")) : words;
}

const QUANTILES = [1, 2, ...powers(10, [1], 1, 9)];
const MORE_QUANTILES = [4 / 3, 4, ...powers(10, [2], 1, 9), ...powers(10, [4], 1, 9)];

// 0, 50, 90, 99, 99.9 … %; also 25, 75, 95, 99.5 … where there is room for them.
function quantiles(low, high) {
  const within = (values) => values.filter((value) => value >= low * 0.999 && value <= high * 1.001);
  const few = within(QUANTILES);
  return few.length > 3 ? few : [...few, ...within(MORE_QUANTILES)].sort((a, b) => a - b);
}
