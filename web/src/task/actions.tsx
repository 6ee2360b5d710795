import { useSignal } from "@preact/signals";
import { useLocation } from "preact-iso";
import { answer, api, checkJSON, type Schemas } from "../api.ts";
import { Action } from "../parts/action.tsx";
import { Area, Check } from "../parts/field.tsx";
import { Edit } from "./edit.tsx";
import { LifetimeFields, lifetimeMembers } from "./lifetime.tsx";
import type { WholeTask } from "./whole.ts";

interface RedriveProps {
  whole: WholeTask;
  stages: Schemas["Stage"][];
  changed: () => void;
}

interface ActionsProps extends RedriveProps {
  /** What the stage of the task gets now, as inputOf returns it. */
  input: string | undefined;
}

/** The buttons for what can be done with a task in its status. */
export function TaskActions({ whole, stages, input, changed }: ActionsProps) {
  const { task } = whole;
  const path = { params: { path: { id: task.id } } };
  const reason = useSignal("");
  const final = task.finished_at !== undefined;
  const after = async (call: Promise<unknown>, said: string) => {
    await call;
    changed();
    return said;
  };
  const why = (
    <label>
      Reason
      <input maxLength={4096} value={reason.value}
        onInput={(e) => (reason.value = e.currentTarget.value)} />
    </label>
  );
  const body = () => (reason.value ? { reason: reason.value } : {});
  return (
    <p class="buttons">
      {task.waits_for === "children" && !task.paused && (
        <Action label="Pause" scope="operate" ask={why}
          run={() => after(answer(api.POST("/v1/tasks/{id}/pause", { ...path, body: body() })),
            "The task is paused")} />
      )}
      {task.paused && (
        <Action label="Resume" scope="operate"
          run={() => after(answer(api.POST("/v1/tasks/{id}/resume", path)),
            "The task is resumed")} />
      )}
      {["delay", "retry", "snooze"].includes(task.waits_for ?? "") && (
        <Action label="Run now" scope="operate"
          run={() => after(answer(api.PATCH("/v1/tasks/{id}", { ...path, body: { delay: "0s" } })),
            "The task is due now")} />
      )}
      <Edit whole={whole} input={input} changed={changed} />
      {(task.status === "failed" || task.status === "cancelled") && !task.erased && (
        <Redrive whole={whole} stages={stages} changed={changed} />
      )}
      {final && !task.child_of && !task.notification && !task.erased && <Rerun whole={whole} />}
      {!final && <Action label="Cancel" scope="operate" danger
        ask={<><p>A cancelled task doesn't go on. It can be redriven.</p>{why}</>}
        run={() => after(answer(api.POST("/v1/tasks/{id}/cancel", { ...path, body: body() })),
          "The task is cancelled")} />}
      {final && !task.erased && <Action label="Erase contents" scope="manage" danger
        ask={<p>Its context, results, errors and labels are gone at once, and nothing brings them
          back. The task stays in lists. It can't be redriven.</p>}
        run={() => after(answer(api.DELETE("/v1/tasks/{id}", path)),
          "The contents are erased")} />}
    </p>
  );
}

/** Runs a final task again, as a new task. */
function Rerun({ whole: { task, context } }: { whole: WholeTask }) {
  const { route } = useLocation();
  const text = useSignal("");
  const edit = useSignal(false);
  const lifetime = useSignal(false);
  const deadlines = { start: useSignal(""), end: useSignal("") };
  const run = async () => {
    if (edit.value) checkJSON("context", text.value);
    const members = lifetime.value ? lifetimeMembers(deadlines) : [];
    if (edit.value) members.push(`"context":${text.value}`);
    const made = await answer(api.POST("/v1/tasks/{id}/rerun", {
      params: { path: { id: task.id } }, body: {},
      bodySerializer: () => `{${members.join(",")}}` }));
    route(`/console/tasks/${made.id}`);
    return `${made.id} runs it again`;
  };
  const ask = (
    <>
      <p>A new task begins at the first stage. This one stays as it is.</p>
      <Check label="With another context" value={edit} />
      {edit.value && <Area label="Context" name="context" rows={12} value={text} />}
      <Check label="With a lifetime of its own" value={lifetime} />
      {lifetime.value && <LifetimeFields {...deadlines} />}
    </>
  );
  return <Action label="Run again" scope="operate" ask={ask} run={run}
    begin={() => (text.value = context ?? "null")} />;
}

function Redrive({ whole: { task, context }, stages, changed }: RedriveProps) {
  const stage = useSignal(task.stage ?? "");
  const text = useSignal("");
  const edit = useSignal(false);
  const lifetime = useSignal(task.error_code === "expired");
  const deadlines = { start: useSignal(""), end: useSignal("") };
  const at = stages.findIndex((s) => s.name === task.stage);
  const run = async () => {
    if (edit.value) checkJSON("context", text.value);
    // The text goes as it is: a parsed one could have changed numbers.
    const members = [`"stage":${JSON.stringify(stage.value)}`];
    if (edit.value) members.push(`"context":${text.value}`);
    if (lifetime.value) members.push(...lifetimeMembers(deadlines));
    await answer(api.POST("/v1/tasks/{id}/redrive", { params: { path: { id: task.id } },
      body: {}, bodySerializer: () => `{${members.join(",")}}` }));
    changed();
    return "The task is redriven";
  };
  const ask = (
    <>
      <label>
        From stage
        <select value={stage.value} onChange={(e) => (stage.value = e.currentTarget.value)}>
          {stages.slice(0, at + 1).map((s) => <option key={s.name}>{s.name}</option>)}
        </select>
      </label>
      <Check label="With another context" value={edit} />
      {edit.value && (
        <Area label="Context" name="context" rows={12} value={text} />
      )}
      <Check label="With another lifetime" value={lifetime} />
      {lifetime.value && (
        <>
          <p>What is left empty stays as it is: a duration counts from now, a time that is over is
            refused.</p>
          <LifetimeFields {...deadlines} />
        </>
      )}
    </>
  );
  return <Action label="Redrive" scope="operate" ask={ask} run={run}
    begin={() => (text.value = context ?? "null")} />;
}
