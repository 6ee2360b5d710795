import { useSignal } from "@preact/signals";
import { useLocation } from "preact-iso";
import { answer, api, type Schemas } from "../api.ts";
import { Action } from "../parts/action.tsx";
import { Field, TypedName } from "../parts/field.tsx";

interface Props {
  type: Schemas["TaskType"];
  changed: () => void;
}

/** The buttons of a task type. */
export function TypeActions({ type, changed }: Props) {
  return (
    <p class="buttons">
      <a class="button" href={`/console/tasks?type=${type.name}`}>Its tasks</a>
      {type.paused_at
        ? <Resume type={type} changed={changed} />
        : <Pause type={type} changed={changed} />}
      {type.flow?.on_failure === "block" && <Release type={type} changed={changed} />}
      <Delete type={type} />
    </p>
  );
}

function Pause({ type, changed }: Props) {
  const reason = useSignal("");
  const run = async () => {
    const body = reason.value ? { reason: reason.value } : {};
    await answer(api.POST("/v1/task-types/{type}/pause",
      { params: { path: { type: type.name } }, body }));
    changed();
    return `${type.name} is paused`;
  };
  const ask = (
    <>
      <p>No more of its tasks begin. Attempts under way are finished; submits are accepted.</p>
      <Field label="Reason" value={reason} maxLength={4096} />
    </>
  );
  return <Action label="Pause" scope="operate" ask={ask} run={run} />;
}

/** A button that lets the tasks of a paused type begin again. */
export function Resume({ type, changed }: Props) {
  const ramp = useSignal("");
  const run = async () => {
    const body = ramp.value ? { ramp: ramp.value } : {};
    await answer(api.POST("/v1/task-types/{type}/resume",
      { params: { path: { type: type.name } }, body }));
    changed();
    return `${type.name} is resumed`;
  };
  const ask = (
    <>
      <p>With a ramp, each node begins with one attempt at a time.</p>
      <Field label="In full after, such as 5m; empty: at once" value={ramp} />
    </>
  );
  return <Action label="Resume" scope="operate" ask={ask} run={run} />;
}

function Release({ type, changed }: Props) {
  const key = useSignal("");
  const run = async () => {
    const { released } = await answer(api.POST("/v1/task-types/{type}/release",
      { params: { path: { type: type.name } }, body: { flow_key: key.value } }));
    changed();
    return `${released} failed tasks no longer block ${key.value}`;
  };
  const ask = (
    <>
      <p>The tasks of the key go on. The task that has failed stays failed.</p>
      <Field label="Flow key" value={key} required maxLength={255} />
    </>
  );
  return <Action label="Release a flow key" scope="operate" ask={ask} run={run} />;
}

function Delete({ type }: { type: Schemas["TaskType"] }) {
  const { route } = useLocation();
  const run = async () => {
    await answer(api.DELETE("/v1/task-types/{type}", { params: { path: { type: type.name } } }));
    route("/console/types");
    return `${type.name} is deleted`;
  };
  const ask = (
    <>
      <p>
        Its ended tasks and its endpoints are deleted with it. This can't be undone. It is refused
        while the type has live tasks or schedules.
      </p>
      <TypedName name={type.name} />
    </>
  );
  return <Action label="Delete" scope="manage" danger ask={ask} run={run} />;
}
