import { now } from "../clock.ts";
import { duration } from "../format.ts";

/** A time relative to now, with the exact one on hover. */
export function Time({ at }: { at: string | undefined }) {
  if (!at) return <>–</>;
  const ms = Date.parse(at) - now.value;
  const text = Math.abs(ms) < 1000 ? "now" : ms > 0 ? `in ${duration(ms)}` : `${duration(-ms)} ago`;
  return <time dateTime={at} title={exact(at)}>{text}</time>;
}

function exact(at: string): string {
  return `${new Date(at).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" })}\n${at}`;
}
