import type { Schemas } from "../api.ts";

/** The longest pause, in seconds. */
const longest = 365 * 24 * 3600;

/** Returns the pause after the nth failed attempt, in seconds; undefined: only the server can. */
export function pause(interval: Schemas["Interval"], attempt: number): number | undefined {
  if (Array.isArray(interval)) return interval[Math.min(attempt, interval.length) - 1];
  if (typeof interval === "number") {
    return interval < 0 ? -interval : Math.min(2 ** (attempt - 1), interval);
  }
  if (interval !== "poly") return undefined;
  const k = attempt - 1;
  return Math.min(k ** 4 + 15 + 15 * (k + 1), longest); // with half of the most jitter
}

/** Returns the pauses of a policy, in seconds; [] if they can't be computed here. */
export function pauses(policy: Schemas["RetryPolicy"]): number[] {
  const out: number[] = [];
  for (let attempt = 1; attempt < (policy.max_attempts ?? 20); attempt++) {
    const seconds = pause(policy.interval ?? 3600, attempt);
    if (seconds === undefined) return [];
    out.push(seconds);
  }
  return out;
}
