import { useSignal } from "@preact/signals";
import { useCallback, useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { CallError, passes } from "./api.ts";
import { live, visible } from "./clock.ts";
import { expired } from "./session.ts";

/** What was loaded. After an error the data of before stays. */
export interface Loaded<T> {
  data: T | undefined;
  error: CallError | undefined;
  loading: boolean;
  /** Resolves when the load is over, also when it failed. */
  reload: () => Promise<void>;
}

/** The longest time of a load, in ms. */
const longest = 60_000;

/** How soon a load is repeated that failed for a reason that passes, in ms. */
const again = 3000;

/**
 * Loads something when keys change, and again every n ms (0: never) while the page is live. A
 * failure that passes is always tried again, also while the viewer has paused the page. Any other
 * failure is never tried again by itself.
 * A load that was overtaken by another one is aborted.
 */
export function useLoad<T>(
  load: (signal: AbortSignal) => Promise<T>,
  keys: readonly unknown[],
  every = 0,
): Loaded<T> {
  const data = useSignal<T | undefined>(undefined);
  const error = useSignal<CallError | undefined>(undefined);
  const loading = useSignal(true);
  const latest = useRef(load);
  latest.current = load;
  const often = useRef(every);
  often.current = every;
  const under = useRef<AbortController | undefined>(undefined);

  const reload = useCallback(async () => {
    under.current?.abort();
    const mine = new AbortController();
    under.current = mine;
    loading.value = true;
    try {
      const either = AbortSignal.any([mine.signal, AbortSignal.timeout(longest)]);
      const got = await latest.current(either);
      if (mine.signal.aborted) return;
      data.value = got;
      error.value = undefined;
    } catch (e) {
      if (mine.signal.aborted) return;
      const failure = e instanceof CallError ? e : new CallError(0, { detail: String(e) });
      if (passes(failure)) failure.again = Date.now() + Math.max(often.current, again);
      error.value = failure;
    }
    loading.value = false;
  }, []);

  useLayoutEffect(() => { // not after the next paint
    data.value = error.value = undefined;
    void reload();
    return () => under.current?.abort();
  }, keys);
  const failed = error.value;
  const pause = failed === undefined ? every : passes(failed) ? Math.max(every, again) : 0;
  const on = pause > 0 && (failed ? visible.value : live.value) && !expired.value;
  useEffect(() => {
    if (!on) return;
    const timer = setInterval(() => {
      if (!loading.peek()) void reload();
    }, pause);
    return () => clearInterval(timer);
  }, [on, pause]);
  return { data: data.value, error: error.value, loading: loading.value, reload };
}
