import type { Schemas } from "../api.ts";

export type Hour = Schemas["StatsHistory"];

/** A number of a point. */
export type Read = (p: Schemas["HistoryPoint"]) => number;

/** Returns a number of each step, which is 0 without a point. step: of the history, in ms. */
export function valuesOf(h: Hour | undefined, of: Read, step = 300_000): number[] {
  if (!h) return [];
  const from = Date.parse(h.from);
  const all = Array<number>(Math.round((Date.parse(h.until) - from) / step)).fill(0);
  for (const p of h.points) all[Math.floor((Date.parse(p.at) - from) / step)] = of(p);
  return all;
}

/** Returns the numbers of each few steps as one, joined. */
export function joined(
  values: number[], few: number, join: (a: number, b: number) => number,
): number[] {
  const all: number[] = [];
  values.forEach((v, i) => {
    const to = Math.floor(i / few);
    all[to] = to in all ? join(all[to]!, v) : v;
  });
  return all;
}
