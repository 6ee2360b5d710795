import { signal } from "@preact/signals";
import { isJSON } from "../json.ts";
import { typedMembers } from "../parts/members.ts";
import { lifetimeMembers } from "../task/lifetime.tsx";
import { newTimes, priorityMember, timeMembers } from "../task/times.tsx";

export type Form = ReturnType<typeof newForm>;

/** What is typed of a new task. */
export const newForm = (type: string) => ({
  type: signal(type), context: signal("{}"), key: signal(""), flowKey: signal(""),
  times: newTimes(), deadlines: { start: signal(""), end: signal("") },
  example: signal("{}"), // what the context was filled with
});

/** Returns the members of the body besides the type and the context, as JSON. */
function optionsOf(f: Form): string[] {
  return [
    ...typedMembers({ key: f.key.value, flow_key: f.flowKey.value }),
    ...timeMembers(f.times), ...priorityMember(f.times), ...lifetimeMembers(f.deadlines),
  ];
}

/** Returns the body of the call. The context is in it as it was typed. */
export function bodyOf(f: Form): string {
  const type = `"type":${JSON.stringify(f.type.value.trim())}`;
  return `{${[type, `"context":${f.context.value}`, ...optionsOf(f)].join(",")}}`;
}

/** Returns what commands say of the task; undefined: it isn't complete. */
export function commandOf(f: Form) {
  const type = f.type.value.trim(), context = f.context.value;
  if (!type || !isJSON(context)) return undefined;
  const options = JSON.parse(`{${optionsOf(f).join(",")}}`) as Record<string, unknown>;
  return { type, context, options };
}
