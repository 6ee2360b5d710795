import type { Schemas } from "../api.ts";
import { milliseconds } from "../format.ts";

export type History = Schemas["StatsHistory"];
export type Point = Schemas["HistoryPoint"];

/** How a series is drawn, so that none differs from another by its colour alone. */
export type Shape = "area" | "bars" | "line" | "dashes" | "dots";

/** One number of a history over time. */
export interface Series {
  name: string;
  /** A class of the style sheet, which has its colour. */
  colour: string;
  shape: Shape;
  /** Returns the number of a point; undefined: the point has none. */
  of: (p: Point) => number | undefined;
  /**
   * What it is if it is 0 in a step that was recorded and has no number; without it, it has none
   * there. Counts are known when the minute is over, samples at once.
   */
  zero?: "count" | "sample";
}

/** Steps in seconds, then a column for each series. null: it isn't known, or there is none. */
export type Columns = [number[], ...(number | null)[][]];

/** A span of time in seconds. */
export type Span = [from: number, until: number];

const seconds = (at: string): number => Date.parse(at) / 1000;

/** Returns the length of a step in seconds. */
export const stepOf = (h: History): number => milliseconds(h.step) / 1000;

/** Returns the numbers of some series, a row for each step of a history; now is in seconds. */
export function columns(h: History, series: Series[], now = Date.now() / 1000): Columns {
  const step = stepOf(h), from = seconds(h.from), until = seconds(h.until);
  const points = new Map(h.points.map((p) => [seconds(p.at), p]));
  const known = recorded(h);
  const last = known.at(-1)?.[1] ?? until;
  // From then on there are no counts yet. A step is counted a minute or two after its end.
  const counted = step > 60 ? until : Math.max(last - step, now - step - 120);
  const times: number[] = [];
  const rows = series.map((): (number | null)[] => []);
  for (let at = from; at < until; at += step) {
    times.push(at);
    const p = points.get(at);
    const idle = known.some(([a, b]) => at >= a && at < b);
    series.forEach((s, i) => {
      const early = s.zero === "count" && at >= counted;
      const n = (p && s.of(p)) ?? (s.zero && idle ? 0 : null);
      rows[i]?.push(early ? null : n);
    });
  }
  return [times, ...rows];
}

/** Returns the times in which nodes recorded. A node of the version before doesn't say them. */
const recorded = (h: Partial<Pick<History, "recorded">>): Span[] =>
  (h.recorded ?? []).map((r) => [seconds(r.from), seconds(r.until)]);

/** For how long nodes may not have recorded yet what was just now, in seconds. */
const late = 180;

/** Returns the times of a history in which no node recorded and no point is known. */
export function gaps(h: History): Span[] {
  const step = stepOf(h), until = seconds(h.until);
  const points = h.points.map((p): Span => [seconds(p.at), seconds(p.at) + step]);
  const all: Span[] = [];
  let at = seconds(h.from);
  for (const [from, end] of [...recorded(h), ...points].sort((a, b) => a[0] - b[0])) {
    if (from > at) all.push([at, from]);
    at = Math.max(at, end);
  }
  if (at < until - late) all.push([at, until]);
  return all;
}

/** Returns the reasons of a backlog, the most frequent first. */
export function reasons(h: History): string[] {
  const most = new Map<string, number>();
  for (const { backlog = {} } of h.points) {
    for (const [why, n] of Object.entries(backlog)) most.set(why, Math.max(n, most.get(why) ?? 0));
  }
  return [...most].sort(([a, m], [b, n]) => n - m || (a < b ? -1 : 1)).map(([why]) => why);
}

/** Returns the time to show after a drag: not so short that there would be hardly a point. */
export function zoomed([from, until]: Span, now: number): Span {
  const least = from < now - 86_400 ? 6 * 3600 : 600;
  const wider = Math.max(0, least - (until - from)) / 2;
  const end = Math.min(now, until + wider);
  return [Math.min(from - wider, end - least), end];
}
