import { signal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { answer, api, CallError, checkJSON, type Schemas } from "../api.ts";
import { Action } from "../parts/action.tsx";
import { Area } from "../parts/field.tsx";
import { More } from "../parts/more.tsx";
import { LifetimeFields, lifetimeMembers } from "./lifetime.tsx";
import type { WholeTask } from "./whole.ts";
import { newTimes, priorityMember, TimeFields, timeMembers } from "./times.tsx";

type Task = Schemas["Task"];
type Form = ReturnType<typeof newForm>;

const newForm = () => ({
  context: signal(""), retry: signal(""), times: newTimes(),
  deadlines: { start: signal(""), end: signal("") },
  // What the form was filled with, and the ETag of the task that had it.
  before: { context: "", retry: "", priority: "", etag: undefined as string | undefined },
});

interface EditProps {
  whole: WholeTask;
  /** What its stage gets now, as inputOf returns it. */
  input: string | undefined;
  changed: () => void;
}

/** The button for the form that changes a task in line. If it begins, an open form stays. */
export function Edit({ whole, input, changed }: EditProps) {
  const { task } = whole;
  const f = useMemo(newForm, [task.id]);
  const run = async () => {
    const members = changesOf(f);
    if (members.length === 0) throw new CallError(0, { detail: "Nothing has been changed yet." });
    const { etag } = f.before;
    await answer(api.PATCH("/v1/tasks/{id}", { body: {},
      params: { path: { id: task.id }, header: etag ? { "If-Match": etag } : {} },
      bodySerializer: () => `{${members.join(",")}}` }));
    changed();
    return "The task is changed";
  };
  const inLine = task.status === "waiting" || task.status === "pending";
  return <Action label="Edit" scope="operate" run={run} ask={<Fields form={f} task={task} />}
    hidden={!inLine || task.waits_for === "signal"}
    disabled={input === undefined} begin={() => fill(f, whole, input)} />;
}

function fill(f: Form, { task, etag }: WholeTask, context = ""): void {
  const retry = JSON.stringify(task.retry ?? {});
  const priority = task.priority === undefined ? "" : JSON.stringify(task.priority);
  f.before = { context, retry, priority, etag };
  f.context.value = context;
  f.retry.value = retry;
  f.times.priority.value = priority;
  for (const typed of [f.times.delay, f.times.runAt, f.deadlines.start, f.deadlines.end]) {
    typed.value = "";
  }
}

/** Returns what was changed as members of the body, as JSON. JSON goes as it was typed. */
function changesOf(f: Form): string[] {
  const members = [...timeMembers(f.times), ...lifetimeMembers(f.deadlines)];
  for (const name of ["context", "retry"] as const) {
    const text = f[name].value;
    if (text === f.before[name] || text.trim() === "") continue;
    checkJSON(name, text);
    members.push(`"${name}":${text}`);
  }
  if (f.times.priority.value.trim() !== f.before.priority) {
    const [priority = '"priority":0'] = priorityMember(f.times);
    members.push(priority);
  }
  return members;
}

function Fields({ form: f, task }: { form: Form; task: Task }) {
  const inLine = task.waits_for !== "children";
  return (
    <>
      {inLine && (
        <>
          <Area label={`Context of the stage ${task.stage}`} name="context" rows={10}
            value={f.context} placeholder="JSON; empty: as it is" />
          <p class="quiet">The stage gets it from the next attempt on.</p>
        </>
      )}
      <TimeFields {...f.times} movable={inLine} />
      <More>
        <p>What is left empty stays as it is. A duration counts from now.</p>
        <LifetimeFields {...f.deadlines} />
        {inLine && (
          <>
            <Area label="Retry policy" name="retry" rows={4} value={f.retry}
              placeholder='{"max_attempts": 40, "interval": 600}' />
            <p class="quiet">It applies to this task alone, in this stage and later ones. What it
              leaves out is as in the type; {"{}"} is the type's.</p>
          </>
        )}
      </More>
    </>
  );
}
