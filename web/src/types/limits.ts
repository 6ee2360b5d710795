import type { Schemas } from "../api.ts";
import { count, span } from "../format.ts";

interface Limited {
  max_in_flight?: number;
  rate?: string;
}

/** Returns limits as text; "" if there are none. */
export function limits({ max_in_flight: most, rate }: Limited): string {
  return [most ? `${count(most)} in flight` : "", rate ?? ""].filter(Boolean).join(", ");
}

const failures = {
  skip: "the others go on when one has failed for good",
  block: "the others wait until a failed one succeeds or its key is released",
  park: "the others pass one that waits for its next attempt",
};

/** Returns the limits of each flow key as text. */
export function flowLimits(flow: Schemas["Flow"]): string {
  const ordered = flow.ordered && `in order; ${failures[flow.on_failure ?? "skip"]}`;
  const weights = Object.entries(flow.weights ?? {})
    .slice(0, 10).map(([key, weight]) => `${key} ${weight}`).join(", ");
  const more = Object.keys(flow.weights ?? {}).length > 10 ? ", …" : "";
  const first = flow.fair === "priority_first" ? ", priority first" : "";
  const fair = flow.fair && `in turn${first}${weights && ` (weights: ${weights}${more})`}`;
  return [limits(flow), ordered, fair].filter(Boolean).join(", ");
}

/** Returns by when tasks must begin or end, a time or a duration, as text. */
export function deadline(text: string): string {
  return /^[0-9]{4}-/.test(text) ? text : `${span(text)} after they are due`;
}
