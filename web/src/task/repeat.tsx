import type { WholeTask } from "./whole.ts";
import { Copy } from "../parts/copy.tsx";

/** Commands that submit the task again: with its context, priority and flow key. */
export function Repeat({ whole: { task, context } }: { whole: WholeTask }) {
  if (context === undefined) return null;
  const options = { priority: task.priority, flow_key: task.flow_key,
    user: task.user, tags: task.tags, metadata: task.metadata };
  const members = Object.entries(options).filter(([, v]) => v !== undefined)
    .map(([name, v]) => `,"${name}":${JSON.stringify(v)}`);
  const body = `{"type":${JSON.stringify(task.type)},"context":${context}${members.join("")}}`;
  const curl = `curl -X POST ${location.origin}/v1/tasks ` +
    `-H "Authorization: Bearer $ASYNCFLOW_TOKEN" ` +
    `-H 'Content-Type: application/json' --data-binary @- ${here(body)}`;
  const flowKey = task.flow_key ? ` --flow-key ${quote(task.flow_key)}` : "";
  const priority = typeof task.priority === "number" ? ` --priority ${task.priority}` : "";
  const cli = `asyncflow tasks submit${flowKey}${priority} ${task.type} - ${here(context)}`;
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

/**
 * Returns a JSON text as the standard input of a command: as an argument, a long one is too long.
 * None of its lines can be END, since that would not be JSON.
 */
function here(json: string): string {
  return `<<'END'\n${json}\nEND\n`;
}

/** Returns a text as one word of a shell. */
function quote(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}
