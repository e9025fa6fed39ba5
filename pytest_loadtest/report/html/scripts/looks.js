"use strict";
// Colours and dashes. The colours are page.css's own properties (Okabe and Ito's, which the colour-blind can tell apart), read anew when light
// and dark change; a role has dashes of its own as well, and a kind of band a pattern of its own.

const ROLES = {
  offered: ["ink", [2, 3]], sent: ["blue", []], acked: ["sky", [6, 3]], received: ["orange", [10, 3, 2, 3]],
  p50: ["green", []], p90: ["sky", [6, 3]], p99: ["blue", [10, 3, 2, 3]], "p99.9": ["orange", [3, 3]], max: ["vermilion", [1, 3]],
  lost: ["vermilion", []], duplicates: ["purple", [6, 3]],
};
const OTHERS = [
  ["blue", []], ["orange", [6, 3]], ["green", [10, 3, 2, 3]], ["purple", [3, 3]], ["sky", [10, 3]], ["vermilion", [1, 3]], ["ink", [6, 2, 2, 2]],
];
const OUTCOMES = {met: ["green", "✓"], missed: ["vermilion", "✗"], "no data": ["muted", "?"], "generator-limited": ["orange", "!"]};
const BANDS = {
  stage: ["stage", "plain"], change: ["blue", "line"], restart: ["vermilion", "plain"], move: ["green", "plain"], stall: ["ink", "rising"], blocked: ["orange", "falling"],
  lost: ["purple", "dots"],
};

const BAND_WORDS = {restart: "outage", move: "topics moved", stall: "generator stalled", blocked: "window full"};
const bandWords = ({kind, label}) => (kind === "stage" || kind === "change" ? label : `${BAND_WORDS[kind] ?? kind}: ${label}`);

const look = (series, index) => ROLES[series.role] ?? OTHERS[(series.index ?? index) % OTHERS.length];
// The lines of another run are pale and thin.
const inkOf = (series, index) => `${theme[look(series, index)[0]]}${series.other ? "80" : ""}`;
const verdict = (outcome) => OUTCOMES[outcome] ?? ["muted", ""];
const bandLook = (kind) => BANDS[kind] ?? ["muted", "plain"];

const theme = {};
function readTheme() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["blue", "sky", "green", "orange", "vermilion", "purple", "ink", "muted", "grid", "paper", "stage"]) {
    theme[name] = style.getPropertyValue(`--${name}`).trim();
  }
  theme.font = `12px ${style.getPropertyValue("--sans").trim()}`;
}

// A tile of a band's pattern, in device pixels.
function pattern(context, kind, ratio) {
  const [colour, how] = bandLook(kind);
  if (how === "plain" || how === "line") return theme[colour];
  const side = 8 * ratio;
  const tile = new OffscreenCanvas(side, side);
  const pen = tile.getContext("2d");
  pen.strokeStyle = pen.fillStyle = theme[colour];
  pen.lineWidth = 1.25 * ratio;
  pen.beginPath();
  if (how === "dots") pen.arc(side / 2, side / 2, side / 5, 0, 7);
  else for (const shift of [-side, 0, side]) {
    pen.moveTo(shift, how === "rising" ? side : 0);
    pen.lineTo(shift + side, how === "rising" ? 0 : side);
  }
  if (how === "dots") pen.fill(); else pen.stroke();
  return context.createPattern(tile, "repeat");
}

// Cividis: counts from few to many, the same to all eyes.
const HEAT = [
  [0, 34, 78], [18, 53, 112], [59, 73, 108], [87, 93, 109], [112, 113, 115], [138, 134, 120], [165, 156, 116], [195, 179, 105], [225, 204, 85],
  [253, 231, 55],
];
function heatColour(share) {
  const place = Math.min(Math.max(share, 0), 1) * (HEAT.length - 1);
  const [from, to] = [HEAT[Math.floor(place)], HEAT[Math.ceil(place)]];
  return from.map((part, i) => Math.round(part + (to[i] - part) * (place % 1)));
}

// What the legend shows. Attributes of SVG are no style attributes: the policy lets them be.
const SVG = "http://www.w3.org/2000/svg";
function drawing(width, path, attributes) {
  const [svg, shape] = ["svg", "path"].map((name) => document.createElementNS(SVG, name));
  for (const [key, value] of Object.entries({width, height: 12, "aria-hidden": "true"})) svg.setAttribute(key, value);
  for (const [key, value] of Object.entries({d: path, ...attributes})) shape.setAttribute(key, value);
  svg.append(shape);
  return svg;
}
const stroke = ([colour, dash], other) => drawing(28, "M0 6H28", {class: `ink-${colour}`, "stroke-width": other ? 1 : 2, opacity: other ? 0.6 : 1, "stroke-dasharray": dash.join(" ") || "none"});

const SWATCHES = {
  plain: "M0 0H16V12H0Z", line: "M8 0V4M8 7V12", rising: "M-4 12L8 0M4 12L16 0M12 12L24 0", falling: "M-4 0L8 12M4 0L16 12M12 0L24 12",
  dots: "M3 2V4M11 2V4M7 7V9M15 7V9",
};
function swatch(kind) {
  const [colour, how] = bandLook(kind);
  return drawing(16, SWATCHES[how], {class: how === "plain" ? `fill-${colour}` : `ink-${colour}`, "stroke-width": 1.5});
}
