import type { Schemas } from "../api.ts";
import { count } from "../format.ts";

/** Says beside the failed tasks of a type how many of them have expired. */
export function Expired({ stats: s }: { stats: Schemas["Stats"] }) {
  if (!s.expired) return null;
  const list = `/console/tasks?type=${s.type}&status=failed&code=expired&children=true`;
  return <> <a class="quiet" href={list}>{count(s.expired)} expired</a></>;
}
