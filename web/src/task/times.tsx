import { type Signal, signal } from "@preact/signals";
import { jsonOf } from "../json.ts";
import { Field, Instant } from "../parts/field.tsx";
import { typedMembers } from "../parts/members.ts";

/** What is typed of when a task runs. */
export interface Times {
  delay: Signal<string>;
  runAt: Signal<string>;
  priority: Signal<string>;
}

export const newTimes = (): Times =>
  ({ delay: signal(""), runAt: signal(""), priority: signal("") });

/** Asks when a task runs, and before which others. */
export function TimeFields({ delay, runAt, priority, movable = true }: Times & {
  movable?: boolean; // the time can be set
}) {
  return (
    <div class="columns">
      {movable && (
        <>
          <Field label="Run no sooner than in" name="delay" maxLength={40}
            placeholder="30m; 0s is at once" value={delay} />
          <Instant label="Or no sooner than at" name="run_at" value={runAt.value}
            change={(to) => (runAt.value = to)} />
        </>
      )}
      <Field label="Head start in seconds" name="priority" maxLength={400}
        placeholder="60, or [60, 0] by stage" value={priority} />
    </div>
  );
}

/** Returns the members of a body that say the time, as JSON. */
export const timeMembers = ({ delay, runAt }: Times): string[] =>
  typedMembers({ delay: delay.value, run_at: runAt.value });

/** Returns the member of a body that says the priority, as JSON; none: nothing was typed. */
export function priorityMember({ priority }: Times): string[] {
  const text = priority.value.trim();
  return text ? [`"priority":${jsonOf(text)}`] : [];
}
