import { useSignal } from "@preact/signals";
import { answer, api, type Schemas } from "../api.ts";
import { useLoad } from "../load.ts";
import { Problem } from "../parts/problem.tsx";
import { Status } from "../parts/status.tsx";
import { isFinal } from "./final.ts";
import { why } from "./why.tsx";

type Task = Schemas["Task"];

const pause = 2000; // between two looks at notifications that are under way, in ms

const read = (id: string, signal: AbortSignal) =>
  answer(api.GET("/v1/tasks/{id}", { signal, params: { path: { id } } }));

const link = (id: string) => <a href={`/console/tasks/${encodeURIComponent(id)}`}>{id}</a>;

/** Where the end of a task is told, and how the notifications stand; or what one tells. */
export function Told({ task }: { task: Task }) {
  if (task.notification) {
    const { event, task: ended, url } = task.notification;
    return (
      <section id="told">
        <h2>Tells the end of a task</h2>
        <p>{link(ended)} to <code>{url}</code>, as the event <code>{event}</code></p>
      </section>
    );
  }
  return task.on_final ? <Notifications task={task} to={task.on_final} /> : null;
}

function Notifications({ task, to }: { task: Task; to: Schemas["OnFinal"] }) {
  const settled = useSignal(false);
  const silent = isFinal(task) && to.on && !to.on.some((s) => s === task.status);
  const told = useLoad(async (signal) => {
    const ids = (await read(task.id, signal)).notifications ?? [];
    const all = await Promise.all(ids.map((id) => read(id, signal)));
    settled.value = isFinal(task) && all.length > 0 && all.every(isFinal);
    return all;
  }, [task.id, task.status], settled.value || silent ? 0 : pause);
  const target = to.target ?? "";
  return (
    <section id="told">
      <h2>Notifications</h2>
      <p>
        {to.on ? `When it has ${to.on.join(" or ")}, ` : "When it has ended, "}
        <code>{to.url}</code> is told, by <a href={`/console/types/${target}`}>{target}</a>.
      </p>
      <Problem error={told.error} retry={told.reload} />
      <ul class="plain">
        {(told.data ?? []).map((n) => (
          <li key={n.id}>
            {link(n.id)} <Status status={n.status} />
            <span class="quiet"> {why(n) || n.error}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}
