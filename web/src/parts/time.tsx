import { now } from "../clock.ts";
import { duration } from "../format.ts";

/** A time relative to now, with the exact one on hover. */
export function Time({ at }: { at: string | undefined }) {
  if (!at) return <>–</>;
  const ms = Date.parse(at) - now.value;
  const text = Math.abs(ms) < 1000 ? "now" : ms > 0 ? `in ${duration(ms)}` : `${duration(-ms)} ago`;
  return <time dateTime={at} title={exact(at)}>{text}</time>;
}

// To make one takes longer than to write a row of a table.
const exactly = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });

/** Returns a time in the viewer's zone as text. */
export const moment = (at: string): string => exactly.format(new Date(at));

const exact = (at: string) => `${moment(at)}\n${at}`;
