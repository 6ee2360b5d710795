import type { Schemas } from "../api.ts";

/** Reports whether nothing of a task changes any more: a cancelled one's children end later. */
export function isFinal({ finished_at, children }: Schemas["Task"]): boolean {
  return finished_at !== undefined && !(children && areLive(children));
}

/** Reports whether some children haven't ended. */
export function areLive(c: Schemas["Children"]): boolean {
  return c.waiting + c.pending + c.running > 0;
}
