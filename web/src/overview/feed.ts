import { signal, useSignalEffect } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { answer, api, CallError, type Schemas } from "../api.ts";
import { live } from "../clock.ts";
import { expired } from "../session.ts";

type Stats = Schemas["Stats"];

/** The stats of all types, by name, as they were last sent; undefined until they are known. */
export const stats = signal<Stats[] | undefined>(undefined);

/** Why they are not followed now. */
export const feedError = signal<CallError | undefined>(undefined);

const again = 3000; // before another try, in ms

/** Follows the stats as long as the page is shown and live, by one stream of events. */
export function useFeed(): void {
  useSignalEffect(() => {
    if (!live.value || expired.value) return;
    return follow();
  });
  useEffect(() => () => (stats.value = undefined), []);
}

function follow(): () => void {
  let source: EventSource | undefined;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let over = false;
  const take = (e: MessageEvent<string>) => {
    const { data } = JSON.parse(e.data) as Schemas["StatsList"];
    stats.value = e.type === "all" ? data : merge(stats.value ?? [], data);
    feedError.value = undefined;
  };
  const open = () => {
    source = new EventSource("/v1/stats/events");
    source.addEventListener("all", take);
    source.addEventListener("stats", take);
    source.onerror = () => {
      source?.close();
      // A stream can't say why it was refused; a call can.
      void answer(api.GET("/v1/quota")).then(
        () => (feedError.value = undefined), (e: CallError) => (feedError.value = e));
      if (!over) timer = setTimeout(open, again);
    };
  };
  open();
  return () => {
    over = true;
    source?.close();
    clearTimeout(timer);
  };
}

function merge(before: Stats[], changed: Stats[]): Stats[] {
  const all = new Map(before.map((s) => [s.type, s]));
  for (const s of changed) all.set(s.type, s);
  return [...all.values()].sort((a, b) => (a.type < b.type ? -1 : 1));
}
