import type { WholeTask } from "./task.tsx";
import { Copy } from "../parts/copy.tsx";

/** Commands that submit the task again. */
export function Repeat({ whole: { task, context } }: { whole: WholeTask }) {
  if (context === undefined) return null;
  const body = `{"type":${JSON.stringify(task.type)},"context":${context}}`;
  const curl = `curl -X POST ${location.origin}/v1/tasks -H "Authorization: Bearer $TOKEN" ` +
    `-H 'Content-Type: application/json' -d ${quote(body)}`;
  const cli = `asyncflow tasks submit ${task.type} -- ${quote(context)}`;
  return (
    <section>
      <h2>Submit it again</h2>
      <p class="buttons">
        <Copy text={curl} label="Copy as curl" />
        <Copy text={cli} label="Copy as CLI" />
      </p>
    </section>
  );
}

/** Returns a text as one word of a shell. */
function quote(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}
