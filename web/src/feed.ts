import { signal, useSignalEffect } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { answer, api, CallError, passes, type Schemas } from "./api.ts";
import { paused, visible } from "./clock.ts";
import { expired } from "./session.ts";

type Stats = Schemas["Stats"];

/** The stats of all types, by name, as they were last sent; undefined until they are known. */
export const stats = signal<Stats[] | undefined>(undefined);

/** Why they are not followed now. */
export const feedError = signal<CallError | undefined>(undefined);

const again = 3000; // before another try, in ms

/**
 * Follows the stats as long as the page is shown and live, by one stream of events. On a paused
 * page it follows them until they are known.
 */
export function useFeed(): void {
  useSignalEffect(() => {
    const known = stats.peek() && !feedError.peek();
    if (!visible.value || (paused.value && known) || expired.value) return;
    return follow();
  });
  useEffect(() => () => {
    stats.value = feedError.value = undefined;
  }, []);
}

function follow(): () => void {
  let source: EventSource | undefined;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let over = false;
  const take = (e: MessageEvent<string>) => {
    const { data } = JSON.parse(e.data) as Schemas["StatsList"];
    stats.value = e.type === "all" ? data : merge(stats.value ?? [], data);
    feedError.value = undefined;
    if (paused.peek()) source?.close();
  };
  const open = () => {
    source = new EventSource("/v1/stats/events");
    source.addEventListener("all", take);
    source.addEventListener("stats", take);
    source.onerror = () => {
      source?.close();
      void whyRefused().then((e) => {
        if (over) return;
        feedError.value = e;
        if (e && !passes(e)) return;
        const pause = again * (1 + Math.random());
        if (e) e.again = Date.now() + pause;
        timer = setTimeout(open, pause);
      });
    };
  };
  open();
  return () => {
    over = true;
    source?.close();
    clearTimeout(timer);
  };
}

/** Returns why the stream is refused; undefined: it isn't. An EventSource can't say. */
async function whyRefused(): Promise<CallError | undefined> {
  const stop = new AbortController();
  try {
    await answer(api.GET("/v1/stats/events", { signal: stop.signal, parseAs: "stream" }));
    return undefined;
  } catch (e) {
    return e as CallError;
  } finally {
    stop.abort();
  }
}

function merge(before: Stats[], changed: Stats[]): Stats[] {
  const all = new Map(before.map((s) => [s.type, s]));
  for (const s of changed) all.set(s.type, s);
  return [...all.values()].sort((a, b) => (a.type < b.type ? -1 : 1));
}
