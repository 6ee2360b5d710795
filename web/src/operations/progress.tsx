import type { Schemas } from "../api.ts";
import { count } from "../format.ts";

type Operation = Schemas["Operation"];

/** What an operation does, with the end of its id. */
export const nameOf = (o: Operation) => `${o.kind} ${o.id.slice(-6)}`;

/** How far an operation is. How many tasks a count looks at isn't known before its end. */
export function Progress({ operation: o }: { operation: Operation }) {
  const past = o.done + o.skipped;
  return (
    <>
      <progress max={Math.max(o.total, 1)} value={o.total ? past : 1}
        aria-label={`Progress of ${nameOf(o)}`} />
      {" "}{count(past)} of{" "}
      {o.kind === "count" && o.state === "running" && "about "}{count(o.total)}
      {o.kind === "count" && o.state === "done" && `, ${count(o.done)} counted`}
    </>
  );
}
