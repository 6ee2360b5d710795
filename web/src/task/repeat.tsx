import { Commands } from "../parts/commands.tsx";
import type { WholeTask } from "./whole.ts";

/** Commands that submit the task again: with its context, priority, flow key and labels. */
export function Repeat({ whole: { task, context } }: { whole: WholeTask }) {
  if (context === undefined) return null;
  const { type, priority, flow_key, user, tags, metadata } = task;
  return (
    <section>
      <h2>Submit it again</h2>
      <p class="buttons">
        <Commands type={type} context={context}
          options={{ priority, flow_key, user, tags, metadata }} />
      </p>
    </section>
  );
}
