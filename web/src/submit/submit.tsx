import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { answer, api, checkJSON, type Schemas } from "../api.ts";
import { useLoad } from "../load.ts";
import { Action } from "../parts/action.tsx";
import { Commands } from "../parts/commands.tsx";
import { Area, Field, Select } from "../parts/field.tsx";
import { More } from "../parts/more.tsx";
import { may } from "../session.ts";
import { LifetimeFields } from "../task/lifetime.tsx";
import { TimeFields } from "../task/times.tsx";
import { exampleOf } from "./example.ts";
import { bodyOf, commandOf, type Form, newForm } from "./form.ts";

type Submitted = Pick<Schemas["SubmittedTask"], "id" | "existing">;

interface SubmitProps {
  /** Its type, unless another one is chosen. */
  type?: string | undefined;
  /** What can be chosen; undefined: the caller can't read which types there are. */
  types?: string[] | undefined;
}

/** The button for the form of a new task, and a link to the task that it made. */
export function Submit({ type = "", types }: SubmitProps) {
  const f = useMemo(() => newForm(type), [type]);
  const made = useSignal<Submitted | undefined>(undefined);
  const run = async () => {
    checkJSON("context", f.context.value);
    const task = await answer(api.POST("/v1/tasks", {
      body: { type: "", context: null }, bodySerializer: () => bodyOf(f),
    }));
    made.value = task;
    f.key.value = ""; // again, it would stand for the same task
    return task.existing ? "An earlier task has this key" : "The task is submitted";
  };
  if (!may("submit")) return null;
  return (
    <p class="buttons">
      <Action label="Submit a task" scope="submit" run={run}
        ask={<Fields form={f} types={types} />} />
      <Made task={made.value} />
    </p>
  );
}

/** What came of a submit. */
function Made({ task }: { task: Submitted | undefined }) {
  if (!task) return null;
  const { id, existing } = task;
  return (
    <span role="status">
      {existing ? "The key is that of" : "Submitted"}{" "}
      {may("read") ? <a href={`/console/tasks/${encodeURIComponent(id)}`}>{id}</a> : id}
    </span>
  );
}

interface FieldsProps {
  form: Form;
  types: string[] | undefined;
}

function Fields({ form: f, types }: FieldsProps) {
  const command = commandOf(f);
  return (
    <>
      {types
        ? <Select label="Type" name="type" required value={f.type.value} options={types}
            change={(to) => (f.type.value = to)} />
        : <Field label="Type" name="type" required maxLength={40} value={f.type} />}
      <Area label="Context" name="context" rows={8} value={f.context} />
      <Example form={f} />
      <TimeFields {...f.times} />
      <More>
        <div class="columns">
          <Field label="Idempotency key" name="key" maxLength={255} value={f.key} />
          <Field label="Flow key" name="flow_key" maxLength={255} value={f.flowKey} />
          <LifetimeFields {...f.deadlines} />
        </div>
      </More>
      {command && <p class="buttons"><Commands {...command} /></p>}
    </>
  );
}

/** Fills in the context of the last task of the type, unless another one was typed. */
function Example({ form: f }: { form: Form }) {
  const type = f.type.value;
  const { data } = useLoad((signal) => exampleOf(type, signal), [type]);
  useEffect(() => {
    if (!data || f.context.value !== f.example.value) return;
    f.context.value = f.example.value = data.context;
  }, [data]);
  if (!data?.id || f.context.value !== data.context) return null;
  return (
    <p class="quiet">
      It is that of <a href={`/console/tasks/${encodeURIComponent(data.id)}`}>{data.id}</a>, the
      last task of the type.
    </p>
  );
}
