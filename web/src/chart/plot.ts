import uPlot from "uplot";
import type { Columns, Shape, Span } from "./series.ts";

// This file is a bundle of its own, with the library: pages without charts don't load it. It has
// nothing of the rest of the console but types.

/** What a plot draws. */
export interface Plotted {
  columns: Columns;
  step: number; // in seconds
  shapes: Shape[];
  gaps: Span[];
  marks: PlottedMark[];
  whole: boolean; // the numbers have no fractions
  text: (n: number) => string; // of a number, on the axis
}

/** A mark on the time axis, with the letter that stands for its kind. */
export interface PlottedMark {
  at: number;
  until: number | undefined;
  letter: string;
}

/** What a plot asks, and what it says. */
export interface PlotUser {
  /** Returns the colours of the series, then those of lines, texts and marks, as they are now. */
  colours: () => string[];
  /** Called with the row under the pointer; null: there is none. */
  hover: (row: number | null) => void;
  /** Called with the time that was dragged over. */
  zoom: (span: Span) => void;
  /** Called after a double click. */
  reset: () => void;
}

/** A plot in a box of the page. */
export interface Plot {
  show: (p: Plotted) => void;
  redraw: () => void;
  remove: () => void;
}

const height = 200;

/** Draws a plot in a box, as wide as the box is. */
export function plot(box: HTMLElement, first: Plotted, user: PlotUser): Plot {
  let shown = first;
  let u = make(box, () => shown, user);
  const resize = new ResizeObserver(() => {
    if (box.clientWidth !== u.width) u.setSize({ width: box.clientWidth, height });
  });
  resize.observe(box);
  return {
    show: (p) => {
      const same = p.shapes.join() === shown.shapes.join();
      shown = p;
      if (same) return u.setData(p.columns);
      u.destroy();
      u = make(box, () => shown, user);
    },
    redraw: () => u.redraw(), // bars keep their colour with their paths
    remove: () => {
      resize.disconnect();
      u.destroy();
    },
  };
}

function make(box: HTMLElement, shown: () => Plotted, user: PlotUser): uPlot {
  const n = shown().shapes.length;
  const colour = (i: number) => user.colours()[i] ?? "";
  const axis = {
    stroke: () => colour(n + 1), font: "12px system-ui, sans-serif",
    grid: { stroke: () => colour(n), width: 1 }, ticks: { stroke: () => colour(n), width: 1 },
  };
  return new uPlot({
    width: box.clientWidth, height, legend: { show: false },
    padding: [8, 34, null, null], // room for half of the last time on the axis
    series: [{}, ...shown().shapes.map((shape, i) => seriesOf(shape, () => colour(i)))],
    scales: {
      x: { range: () => whole(shown()) },
      y: { range: (_, __, top) => [0, (top || 1) * 1.1] },
    },
    axes: [
      { ...axis, size: 34, space: 70,
        values: (_, at, __, ___, step) => at.map((t) => timeText(t, step)) },
      { ...axis, size: 72, incrs: steps(shown().whole),
        values: (_, all) => all.map((v) => shown().text(v)) },
    ],
    cursor: { y: false, drag: { x: true, y: false, setScale: false }, points: { size: 7 },
      bind: { dblclick: () => () => (user.reset(), null) } },
    hooks: {
      drawClear: [(u) => drawGaps(u, shown().gaps, colour(n))],
      draw: [(u) => drawMarks(u, shown().marks, colour(n + 2))],
      setCursor: [(u) => user.hover(u.cursor.idx ?? null)],
      setSelect: [(u) => select(u, user)],
    },
  }, shown().columns, box);
}

/** Returns the distances of lines that an axis may have. */
const steps = (whole: boolean): number[] => Array.from({ length: 40 }, (_, i) =>
  [1, 2, 5][i % 3]! * 10 ** (Math.floor(i / 3) - (whole ? 0 : 1)));

/** Returns the time of all steps. */
function whole({ columns: [times], step }: Plotted): [number, number] {
  const first = times[0] ?? 0;
  return [first, (times[times.length - 1] ?? first) + step];
}

function select(u: uPlot, user: PlotUser): void {
  const { left, width } = u.select;
  if (width < 4) return;
  u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  user.zoom([u.posToVal(left, "x"), u.posToVal(left + width, "x")]);
}

const dashes: Partial<Record<Shape, number[]>> = { dashes: [8, 4], dots: [2, 3] };

function seriesOf(shape: Shape, colour: () => string): uPlot.Series {
  const line: uPlot.Series = {
    stroke: colour, width: shape === "bars" ? 0 : 2, dash: dashes[shape],
    points: { show: false, filter: alone, size: 5 },
  };
  if (shape === "area") return { ...line, fill: () => faint(colour()) };
  if (shape !== "bars") return line;
  const bars = uPlot.paths.bars?.({ size: [0.7, 12], align: 1 });
  return { ...line, fill: colour, paths: bars, points: { show: false } };
}

const faint = (colour: string): string =>
  colour.replace(/^rgb\((.*)\)$/, (_, parts: string) => `rgba(${parts}, .18)`);

/** Returns the rows of a series that a line leaves out: they have no neighbours. */
function alone(u: uPlot, series: number): number[] {
  const all = u.data[series] ?? [];
  return [...all.keys()].filter((i) =>
    all[i] != null && all[i - 1] == null && all[i + 1] == null);
}

/** Hatches the times of which nothing is known. */
function drawGaps({ ctx, bbox, valToPos }: uPlot, gaps: Span[], colour: string): void {
  ctx.save();
  ctx.beginPath();
  for (const [from, until] of gaps) {
    const x = Math.max(bbox.left, valToPos(from, "x", true));
    const end = Math.min(bbox.left + bbox.width, valToPos(until, "x", true));
    if (end > x) ctx.rect(x, bbox.top, end - x, bbox.height);
  }
  ctx.clip();
  ctx.beginPath();
  for (let x = bbox.left - bbox.height; gaps.length && x < bbox.left + bbox.width; x += 10) {
    ctx.moveTo(x, bbox.top + bbox.height);
    ctx.lineTo(x + bbox.height, bbox.top);
  }
  ctx.strokeStyle = colour;
  ctx.stroke();
  ctx.restore();
}

/** Draws a line at each mark, its letter, and, if it lasts, how long. */
function drawMarks(u: uPlot, marks: PlottedMark[], colour: string): void {
  const { ctx, bbox } = u;
  const right = bbox.left + bbox.width;
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = colour;
  ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.textAlign = "left";
  ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
  let free = 0; // where the next letter has place
  for (const { at, until, letter } of marks) {
    const x = Math.max(bbox.left, u.valToPos(at, "x", true));
    if (x > right) continue;
    const end = until === undefined ? x : Math.min(right, u.valToPos(until, "x", true));
    ctx.fillRect(x, bbox.top, Math.max(0, end - x), 3 * devicePixelRatio);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    if (x < free) continue;
    const beside = x + 14 * devicePixelRatio > right ? -11 : 3;
    ctx.fillText(letter, x + beside * devicePixelRatio, bbox.top + 14 * devicePixelRatio);
    free = x + 14 * devicePixelRatio;
  }
  ctx.restore();
}

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });

/** Returns the text of a time on an axis with a step in seconds: midnight is said by its day. */
function timeText(at: number, step: number): string {
  const t = new Date(at * 1000);
  const midnight = t.getHours() + t.getMinutes() === 0;
  return step >= 86_400 || midnight ? day.format(t) : clock.format(t);
}
