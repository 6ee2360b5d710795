import { now } from "../clock.ts";
import { duration } from "../format.ts";

/** A time relative to now, with the exact one on hover. */
export function Time({ at }: { at: string | undefined }) {
  if (!at) return <>–</>;
  const ms = Date.parse(at) - now.value;
  const text = Math.abs(ms) < 1000 ? "now" : ms > 0 ? `in ${duration(ms)}` : `${duration(-ms)} ago`;
  return <time dateTime={at} title={exact(at)}>{text}</time>;
}

/** How long something has lasted, after a space, with its beginning on hover: for 5 min. */
export function For({ since }: { since: string | undefined }) {
  if (!since) return null;
  const ms = Math.max(now.value - Date.parse(since), 1000);
  return <> <time dateTime={since} title={exact(since)}>for {duration(ms)}</time></>;
}

// To make one takes longer than to write a row of a table.
const exactly = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });

/** Returns a time in the viewer's zone as text. */
export const moment = (at: string): string => exactly.format(new Date(at));

const exact = (at: string) => `${moment(at)}\n${at}`;
