import { invalid } from "./errors.js";

const longest = 2 ** 31 - 1; // the longest time of setTimeout, 24 days

/** Calls do after ms, which may be Infinity. The returned function prevents it. */
export function after(ms: number, act: () => void): () => void {
  let timer: ReturnType<typeof setTimeout>;
  const until = Date.now() + ms;
  const arm = () => {
    const left = until - Date.now();
    timer = left > longest ? setTimeout(arm, longest) : setTimeout(act, Math.max(0, left));
  };
  if (ms === Infinity) return () => {};
  arm();
  return () => clearTimeout(timer);
}

/** Waits; false if the signal was aborted meanwhile. */
export function pause(ms: number, signal?: AbortSignal): Promise<boolean> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve(false);
    const onAbort = () => {
      stop();
      resolve(false);
    };
    const stop = after(ms, () => {
      signal?.removeEventListener("abort", onAbort);
      resolve(true);
    });
    signal?.addEventListener("abort", onAbort, { once: true });
  });
}

/** A signal that is aborted with another one, or after a time; done() ends both. */
export interface Limit {
  readonly signal: AbortSignal;
  /** Starts the time again. */
  again(): void;
  done(): void;
}

export function limit(ms: number, outer?: AbortSignal): Limit {
  const own = new AbortController();
  const onAbort = () => own.abort(outer?.reason);
  const onTime = () => own.abort(new Error(`nothing came in ${ms / 1000} s`));
  let stop = after(ms, onTime);
  if (outer?.aborted) onAbort();
  else outer?.addEventListener("abort", onAbort, { once: true });
  return {
    signal: own.signal,
    again() {
      stop();
      stop = after(ms, onTime);
    },
    done() {
      stop();
      outer?.removeEventListener("abort", onAbort);
    },
  };
}

const units: Record<string, number> = {
  ns: 1e-6,
  us: 1e-3,
  µs: 1e-3,
  ms: 1,
  s: 1000,
  m: 60_000,
  h: 3_600_000,
  d: 24 * 3_600_000,
  w: 7 * 24 * 3_600_000,
};

/** Returns the milliseconds of a duration of the API, such as "1h30m" or "7d". */
export function parseDuration(text: string): number {
  if (!/^([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h|d|w))+$/.test(text))
    throw invalid("duration", `is "${text}"; it must be such as 30s, 1h30m or 7d`);
  let sum = 0;
  for (const [, n, unit] of text.matchAll(/([0-9.]+)([a-zµ]+)/g))
    sum += Number(n) * (units[unit ?? ""] ?? NaN);
  return sum;
}

/** Returns a duration in the API's format. */
export function formatDuration(ms: number): string {
  return `${Math.round(Math.min(Math.max(ms, 0), 366 * 24 * 3_600_000))}ms`;
}

/** Returns the milliseconds that a Retry-After header asks for, 0 if none. */
export function retryAfterOf(headers: Headers): number {
  const text = headers.get("Retry-After") ?? "";
  if (/^\d+$/.test(text)) return Math.min(Number(text), 366 * 24 * 3600) * 1000;
  const at = Date.parse(text);
  return Number.isNaN(at) ? 0 : Math.max(0, at - Date.now());
}
