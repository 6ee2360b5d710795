import type { Schemas } from "../api.ts";

type Stats = Schemas["Stats"];

/** What is wrong with a type. A lower rank is worse. */
interface Trouble {
  rank: number;
  text: string;
  kind: "failing" | "pending"; // its colour
}

const late = 60_000; // ms that a task has been due for

/** Reports whether due tasks wait for what gets no deliveries, however much time passes. */
export const isStill = (b: { waits_for: string }): boolean =>
  b.waits_for === "endpoint" || b.waits_for === "endpoint_unhealthy";

/** Returns what is wrong with a type now; undefined: nothing. */
export function troubleOf(s: Stats): Trouble | undefined {
  if (s.backlog?.some(isStill)) return { rank: 0, text: "stands still", kind: "failing" };
  if (s.paused && s.pending > 0) return { rank: 1, text: "paused", kind: "pending" };
  if (s.rates.failures > 0) return { rank: 2, text: "attempts fail", kind: "failing" };
  const due = s.oldest_due ? Date.now() - Date.parse(s.oldest_due) : 0;
  return due > late ? { rank: 3, text: "late", kind: "pending" } : undefined;
}

/** Returns the types, worst first. Of equal rank, those with failed tasks are first. */
export function byTrouble(stats: Stats[]): Stats[] {
  const rank = (s: Stats) => troubleOf(s)?.rank ?? (s.failed > 0 ? 4 : 5);
  const tens = (s: Stats) => Math.floor(Math.log10(s.rates.failures + 1)); // a row seldom moves
  return stats.map((s) => ({ s, rank: rank(s), tens: tens(s) }))
    .sort((a, b) => a.rank - b.rank || b.tens - a.tens || (a.s.type < b.s.type ? -1 : 1))
    .map(({ s }) => s);
}
