import { moment } from "../parts/time.tsx";
import type { Filter, Place } from "./filters.tsx";

/** What inWords says apart from these; a new field needs words of its own. */
type Said = Exclude<keyof Filter, "status" | "text" | "children" | Place>;

const quoted = (text: string) => `“${text}”`;

const parts: Record<Said, (value: string) => string> = {
  type: (v) => `of the type ${v}`,
  stage: (v) => `in the stage ${v}`,
  error: (v) => `with ${quoted(v)} in the error`,
  code: (v) => `with the error code ${v}`,
  fingerprint: (v) => `with an error of the kind ${v}`,
  attempts: (v) => `in attempt ${v} or later`,
  key: (v) => `with the idempotency key ${quoted(v)}`,
  flow_key: (v) => `with the flow key ${quoted(v)}`,
  worker: (v) => `of the worker ${v}`,
  user: (v) => `of the user ${quoted(v)}`,
  tags: (v) => `with all the tags ${v}`,
  any_tags: (v) => `with one of the tags ${v}`,
  metadata: (v) => `with ${quoted(v)} in the metadata`,
  parent: (v) => `that are children of ${v}`,
  since: (v) => `submitted from ${time(v)} on`,
  until: (v) => `submitted before ${time(v)}`,
  ended_since: (v) => `ended from ${time(v)} on`,
  ended_until: (v) => `ended before ${time(v)}`,
};

const time = (at: string) => (Number.isNaN(Date.parse(at)) ? at : moment(at));

/** Says a whole filter in words, apart from the status: of the type x, with the error code 503. */
export function inWords(filter: Filter): string {
  const said = (Object.keys(parts) as Said[]).flatMap((name) => {
    const value = filter[name];
    return value ? [parts[name](value)] : [];
  });
  if (!filter.type) said.unshift("of all types");
  if (filter.children !== "true" && !filter.parent) said.push("without children of fan-outs");
  return said.join(", ");
}
