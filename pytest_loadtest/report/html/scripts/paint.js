"use strict";
// What is drawn on the canvas beside uPlot's own lines: bands, the heat map, objectives, marks. All positions are device pixels.

function within(plot, draw) {
  const {ctx, bbox} = plot;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  draw(ctx, bbox, devicePixelRatio);
  ctx.restore();
}

const across = (plot, x) => Math.round(plot.valToPos(x, "x", true));
const up = (plot, y) => Math.round(plot.valToPos(y, "y", true));

// Words that keep out of each other's way, and of the marks.
class Labels {
  constructor(plot) {
    Object.assign(this, {plot, taken: []});
  }

  // At the first of `spots` ([x, y of its lower edge, "left" or "right" of what it stands]) that is free; nowhere if none is.
  put(text, spots, colour) {
    const {ctx, bbox} = this.plot;
    const ratio = devicePixelRatio;
    ctx.font = theme.font.replace("12px", `${11 * ratio}px`);
    const [width, height] = [ctx.measureText(text).width, 13 * ratio];
    const [lowest, rightmost] = [bbox.top + bbox.height - height, bbox.left + bbox.width - width - 2 * ratio];
    const box = spots
      .map(([x, y, side]) => ({
        left: Math.min(Math.max(side === "left" ? x - width : x, bbox.left + 2 * ratio), rightmost),
        top: Math.min(Math.max(y - height, bbox.top), lowest), width, height,
      }))
      .find((one) => this.taken.every((other) => apart(one, other)));
    if (!box) return;
    this.taken.push(box);
    Object.assign(ctx, {textAlign: "left", textBaseline: "top", lineJoin: "round", lineWidth: 3 * ratio});
    Object.assign(ctx, {strokeStyle: theme.paper, fillStyle: colour});
    ctx.setLineDash([]);
    ctx.strokeText(text, box.left, box.top);
    ctx.fillText(text, box.left, box.top);
  }
}

const apart = (a, b) => a.left >= b.left + b.width || b.left >= a.left + a.width || a.top >= b.top + b.height || b.top >= a.top + a.height;

// ---- bands

// What of each kind is in sight: [left, right] in pixels, one at least wide, those that touch as one.
function inSight(plot, bands) {
  const {left, width} = plot.bbox;
  const spans = [];
  for (const band of bands) {
    const from = Math.max(across(plot, band.from), left - 1);
    const to = Math.min(Math.max(across(plot, band.to), from + 1), left + width + 1);
    if (to < left || from > left + width) continue;
    const last = spans.at(-1);
    if (last && from <= last[1]) last[1] = Math.max(last[1], to); else spans.push([from, to]);
  }
  return spans;
}

function drawBands(plot, kinds) {
  within(plot, (ctx, {top, height}, ratio) => {
    for (const [kind, bands] of kinds) {
      const [colour, how] = bandLook(kind);
      if (kind === "stage") drawStages(plot, ctx, bands);
      else if (how === "line") drawChanges(plot, ctx, bands, theme[colour], ratio);
      else {
        ctx.fillStyle = pattern(ctx, kind, ratio);
        ctx.globalAlpha = how === "plain" ? 0.25 : 0.5;
        ctx.beginPath();
        for (const [from, to] of inSight(plot, bands)) ctx.rect(from, top, to - from, height);
        ctx.fill();
        ctx.globalAlpha = 1;
        for (const [from, to] of inSight(plot, bands)) {
          ctx.fillStyle = theme[colour];
          ctx.fillRect(from, top, to - from, 3 * ratio);
        }
      }
    }
  });
}

function drawStages(plot, ctx, bands) {
  const {top, height} = plot.bbox;
  bands.forEach((band, i) => {
    const [from, to] = [across(plot, band.from), across(plot, band.to)];
    ctx.fillStyle = theme.stage;
    if (i % 2 === 0) ctx.fillRect(from, top, to - from, height);
  });
}

function drawChanges(plot, ctx, bands, colour, ratio) {
  const {top, height} = plot.bbox;
  ctx.strokeStyle = colour;
  ctx.lineWidth = 1.5 * ratio;
  ctx.setLineDash([4 * ratio, 3 * ratio]);
  for (const [from] of inSight(plot, bands)) {
    ctx.beginPath();
    ctx.moveTo(from, top);
    ctx.lineTo(from, top + height);
    ctx.stroke();
  }
}

// The names of stages and changes, where there is room.
function nameBands(plot, labels, kinds) {
  const {left, top, width} = plot.bbox;
  const ratio = devicePixelRatio;
  for (const kind of ["stage", "change"]) {
    for (const band of kinds.get(kind) ?? []) {
      const from = Math.max(across(plot, band.from), left);
      const room = kind === "stage" ? Math.min(across(plot, band.to), left + width) - from : 200 * ratio;
      plot.ctx.font = theme.font.replace("12px", `${11 * ratio}px`);
      if (from > left + width || plot.ctx.measureText(band.label).width + 8 * ratio > room) continue;
      labels.put(band.label, [[from + 4 * ratio, top + 18 * ratio, "right"]], kind === "stage" ? theme.muted : theme.blue);
    }
  }
}

// ---- the heat map

// As an image of the plot's own pixels: of the cells that share one, the fullest is seen.
function drawHeat(plot, chart) {
  within(plot, (ctx, {left, top, width, height}) => {
    const [w, h] = [Math.round(width), Math.round(height)];
    if (w < 1 || h < 1) return;
    const most = chart.cells.reduce((highest, [, , count]) => Math.max(highest, count), 2);
    const fullest = new Float32Array(w * h);
    const columns = chart.xs.map((x) => pixels(across(plot, x) - left, across(plot, x + chart.step) - left, w));
    const rows = chart.ys.slice(1).map((y, i) => pixels(up(plot, y) - top, up(plot, chart.ys[i]) - top, h));
    for (const [x, y, count] of chart.cells) {
      const share = Math.log(count + 1) / Math.log(most + 1);
      for (let row = rows[y][0]; row < rows[y][1]; row++) {
        for (let place = row * w + columns[x][0]; place < row * w + columns[x][1]; place++) {
          if (fullest[place] < share) fullest[place] = share;
        }
      }
    }
    const layer = new OffscreenCanvas(w, h);
    layer.getContext("2d").putImageData(image(fullest, w, h), 0, 0);
    ctx.drawImage(layer, Math.round(left), Math.round(top));
  });
}

// The pixels from a to b that are in sight; one at least.
function pixels(a, b, length) {
  const from = Math.round(a);
  return [Math.min(Math.max(from, 0), length), Math.min(Math.max(Math.round(b), from + 1, 0), length)];
}

function image(shares, width, height) {
  const colours = new Uint32Array(Array.from({length: 257}, (_, i) => {
    const [red, green, blue] = heatColour(i / 256);
    return (255 << 24) | (blue << 16) | (green << 8) | red;
  }));
  const found = new ImageData(width, height);
  const points = new Uint32Array(found.data.buffer);
  for (let i = 0; i < shares.length; i++) if (shares[i] > 0) points[i] = colours[Math.round(shares[i] * 256)];
  return found;
}

// ---- objectives and marks

function drawBounds(plot, bounds) {
  const {left, top, width, height} = plot.bbox;
  const ratio = devicePixelRatio;
  return bounds.map((bound) => {
    const [colour, sign] = verdict(bound.outcome);
    const [x, y] = [bound.x === null ? null : across(plot, bound.x), bound.y === null ? null : up(plot, bound.y)];
    within(plot, (ctx) => {
      ctx.strokeStyle = theme[colour];
      ctx.lineWidth = 2 * ratio;
      ctx.setLineDash([8 * ratio, 4 * ratio]);
      ctx.beginPath();
      if (y !== null) ctx.moveTo(left, y);
      if (y !== null) ctx.lineTo(x ?? left + width, y);
      if (x !== null) ctx.moveTo(x, y ?? top + height);
      if (x !== null) ctx.lineTo(x, top);
      ctx.stroke();
      if (x !== null && y !== null) dot(ctx, x, y, sign, theme[colour], ratio);
    });
    return {label: bound.label, text: `${bound.label} ${sign}`.trim(), colour, x, y};
  });
}

// At the end of its line, above or below it; one that is out of sight is named at the edge.
function nameBounds(plot, labels, drawn) {
  const {left, top, width, height} = plot.bbox;
  const ratio = devicePixelRatio;
  for (const {text, colour, x, y} of drawn) {
    const end = x ?? left + width;
    const out = y !== null && y < top ? " ↑" : y !== null && y > top + height ? " ↓" : "";
    const near = (edge) => [[end - 6 * ratio, edge, "left"], [end - 6 * ratio, edge + 17 * ratio, "left"]];
    const far = (edge) => [[left + 4 * ratio, edge, "right"], [left + 4 * ratio, edge + 17 * ratio, "right"], [end + 6 * ratio, edge, "right"]];
    const edge = (y ?? top + 18 * ratio) - 2 * ratio;
    labels.put(text + out, [...near(edge), ...far(edge), ...near(edge + 34 * ratio)], theme[colour]);
  }
}

function drawMarks(plot, labels, marks) {
  const ratio = devicePixelRatio;
  const seen = marks.filter((mark) => mark.y !== null).map((mark) => ({...mark, left: across(plot, mark.x), top: up(plot, mark.y)}));
  within(plot, (ctx) => {
    for (const {left, top, outcome} of seen) {
      const [colour, sign] = verdict(outcome);
      dot(ctx, left, top, sign, theme[colour], ratio);
      labels.taken.push({left: left - 5 * ratio, top: top - 5 * ratio, width: 10 * ratio, height: 10 * ratio});
    }
    for (const {left, top, label} of seen.filter((mark) => mark.label !== mark.outcome)) {
      const [right, before, below] = [left + 8 * ratio, left - 8 * ratio, top + 6 * ratio];
      const beside = [[right, below, "right"], [before, below, "left"]];
      labels.put(label, [...beside, [right, top - 5 * ratio, "right"], [right, top + 18 * ratio, "right"]], theme.ink);
    }
  });
  return seen.length;
}

// Outcomes differ in form too, so a label need not repeat them: a full circle, a cross, a ring.
function dot(ctx, x, y, sign, colour, ratio) {
  const size = 5 * ratio;
  ctx.setLineDash([]);
  ctx.lineWidth = 2 * ratio;
  ctx.strokeStyle = ctx.fillStyle = colour;
  ctx.beginPath();
  if (sign === "✗") {
    ctx.moveTo(x - size, y - size);
    ctx.lineTo(x + size, y + size);
    ctx.moveTo(x - size, y + size);
    ctx.lineTo(x + size, y - size);
  } else ctx.arc(x, y, size, 0, 7);
  if (sign === "✓") ctx.fill(); else ctx.stroke();
}
