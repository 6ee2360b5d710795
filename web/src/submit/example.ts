import { answer, api } from "../api.ts";
import { depthOf, indented, members } from "../json.ts";
import { may } from "../session.ts";

/** A context longer than this, in characters, is no example: neither as it is nor indented. */
const longest = 100_000;

/** Nor is a deeper one: indented, it would take too much memory. */
const deepest = 100;

/** A context to begin with, and the task that has it; without one there is none. */
interface Example {
  context: string;
  id?: string;
}

/** Returns the context of the last task of a type, if the caller may read it. */
export async function exampleOf(type: string, signal: AbortSignal): Promise<Example> {
  const none = { context: "{}" };
  if (!type || !may("read")) return none;
  const list = await answer(api.GET("/v1/tasks",
    { signal, params: { query: { type, children: false, limit: 1 } } }));
  const id = list.data[0]?.id;
  if (id === undefined) return none;
  const text = await answer(api.GET("/v1/tasks/{id}",
    { signal, params: { path: { id } }, parseAs: "text" })) as string;
  const { context } = members(text);
  if (context === undefined || context.length > longest || depthOf(context) > deepest) return none;
  const shown = indented(context);
  return shown.length > longest ? none : { context: shown, id };
}
