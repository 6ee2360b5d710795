const units: [string, number][] = [
  ["d", 86_400_000],
  ["h", 3_600_000],
  ["min", 60_000],
  ["s", 1000],
];

/** Returns a duration in ms as text, in its two largest units: 1 h 5 min. */
export function duration(ms: number): string {
  if (ms < 1000) return `${ms < 10 ? Math.round(ms * 10) / 10 : Math.round(ms)} ms`;
  for (const [i, [unit, size]] of units.entries()) {
    if (ms < size) continue;
    const whole = Math.floor(ms / size);
    const next = units[i + 1];
    if (!next) return `${whole < 10 ? Math.round(ms / 100) / 10 : whole} s`;
    const rest = Math.floor((ms % size) / next[1]);
    return rest && whole < 10 ? `${whole} ${unit} ${rest} ${next[0]}` : `${whole} ${unit}`;
  }
  return "";
}

const counts = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const rates = new Intl.NumberFormat("en", { maximumSignificantDigits: 2 });

/** Returns a number of things as text: 12,345. */
export const count = (n: number): string => counts.format(n);

/** Returns a number of tasks as text: 1 task, 12,345 tasks. */
export const tasks = (n: number): string => `${counts.format(n)} ${n === 1 ? "task" : "tasks"}`;

/** Returns a number per second as text; nothing for nothing. */
export const rate = (n: number): string => (n ? `${rates.format(n)}/s` : "–");

/**
 * Returns how long attempts took as text: 3.1 / 70 ms, or 38 ms / 1.5 s, for p50 and p99, or p95
 * where that isn't known.
 */
export function latency(
  l: { p50_ms: number; p95_ms?: number; p99_ms?: number } | undefined,
): string {
  if (!l) return "–";
  const low = duration(l.p50_ms), high = duration(l.p99_ms ?? l.p95_ms ?? 0);
  const [n, unit, more] = low.split(" ");
  return `${!more && high.split(" ")[1] === unit ? n : low} / ${high}`;
}

const sizes = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

/** Returns a number of bytes as text, in powers of 1,024 as limits are: 4.64 KiB. */
export function bytes(n: number): string {
  if (n < 1 << 10) return `${count(n)} B`;
  if (n < 1 << 20) return `${sizes.format(n / (1 << 10))} KiB`;
  return n < 1 << 30 ? `${sizes.format(n / (1 << 20))} MiB` : `${sizes.format(n / (1 << 30))} GiB`;
}

/** Returns a name of the API in words: fanned_out is fanned out. */
export const words = (name: string): string => name.replaceAll("_", " ");

/** Returns an amount of a quota as text, in the quota's unit. */
export function amount(quota: string, n: number): string {
  if (quota.endsWith("_bytes")) return bytes(n);
  return quota.endsWith("_per_second") ? rate(n) : count(n);
}

const spans: Record<string, number> = {
  w: 7 * 86_400_000, d: 86_400_000, h: 3_600_000, m: 60_000,
  s: 1000, ms: 1, us: 1e-3, "µs": 1e-3, ns: 1e-6,
};

/** Returns a duration of the API, such as 1h30m0s, in ms. */
export function milliseconds(text: string): number {
  let sum = 0;
  for (const [, n, unit = ""] of text.matchAll(/([\d.]+)(w|d|h|ms|m|s|us|µs|ns)/g)) {
    sum += Number(n) * (spans[unit] ?? 0);
  }
  return sum;
}

/** Returns a duration of the API as text: 1 h 30 min. */
export const span = (text: string): string => duration(milliseconds(text));

/** Returns a share of 1 as a percentage. */
export const percent = (share: number): string => `${rates.format(share * 100)} %`;

/** The name of a claimer, and the subject of its token if that differs. */
export function claimerOf({ claimer, subject }: { claimer?: string; subject?: string }): string {
  return subject && subject !== claimer ? `${claimer} (token of ${subject})` : claimer ?? "";
}
