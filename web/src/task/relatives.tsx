import { answer, api, type Schemas } from "../api.ts";
import { count } from "../format.ts";
import { useLoad } from "../load.ts";
import { Status } from "../parts/status.tsx";
import { TaskTable } from "../tasks/tasks.tsx";

/** The children of a task, and what it depends on. */
export function Relatives({ task }: { task: Schemas["Task"] }) {
  return (
    <>
      {task.children && <Children task={task} children={task.children} />}
      {task.dependencies && (
        <section id="dependencies">
          <h2>Depends on</h2>
          <ul>
            {task.dependencies.map((d, i) => (
              <li key={i}>
                {d.task ? <a href={`/console/tasks/${d.task}`}>{d.task}</a> : `${d.type} ${d.key}`}
                {" "}{d.status ? <Status status={d.status} /> : "not submitted yet"}
                <span class="quiet"> on failure: {d.on_failure}</span>
              </li>
            ))}
          </ul>
        </section>
      )}
    </>
  );
}

const states = ["waiting", "pending", "running", "succeeded", "failed", "cancelled"] as const;

function Children(
  { task, children }: { task: Schemas["Task"]; children: Schemas["Children"] },
) {
  const some = useLoad(async (signal) => (await answer(api.GET("/v1/tasks", { signal,
    params: { query: { type: task.type, parent: task.id, limit: 20 } } }))).data,
    [task.id, children.total, children.succeeded + children.failed + children.cancelled]);
  return (
    <section id="children">
      <h2>Children</h2>
      <p>
        {count(children.total)} in all:{" "}
        {states.filter((s) => children[s]).map((s) => (
          <a key={s} href={`/console/tasks?type=${task.type}&parent=${task.id}&status=${s}`}>
            {count(children[s])} <Status status={s} />{" "}
          </a>
        ))}
      </p>
      {some.data && some.data.length > 0 && <TaskTable tasks={some.data} />}
      {children.total > 20 && (
        <p><a href={`/console/tasks?type=${task.type}&parent=${task.id}`}>All children</a></p>
      )}
    </section>
  );
}
