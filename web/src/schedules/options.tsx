import { signal } from "@preact/signals";
import type { Schemas } from "../api.ts";
import { elements, jsonOf, members, plain, typedOf } from "../json.ts";
import { Check, Field, Refusal, Select } from "../parts/field.tsx";
import { Several } from "../parts/several.tsx";

type Form = ReturnType<typeof newOptions>;
type Texts = Record<string, string>;

/** What is typed of the options of a schedule's tasks, and of how many runs are caught up. */
export const newOptions = () => ({
  priority: signal(""), attempts: signal(""), interval: signal(""), limit: signal(""),
  depends: signal<ReturnType<typeof newDependency>[]>([]), results: signal(false),
  onFinal: signal(""), // as it is stored: the form shows no field for it
});

/** A dependency: of a task by its id, or by its type and key. */
function newDependency(texts: Texts = {}) {
  const of = (name: string) => signal(texts[name] === undefined ? "" : plain(texts[name]));
  return {
    task: of("task"), type: of("type"), key: of("key"),
    onFailure: signal(texts.on_failure === undefined ? "fail" : plain(texts.on_failure)),
    waitFor: of("wait_for"),
  };
}

/** Has the form show a schedule. texts are its members as they are stored. */
export function fillOptions(f: Form, s: Schemas["Schedule"], texts: Texts): void {
  const retry = members(texts.retry ?? "{}");
  f.priority.value = texts.priority ?? "";
  f.attempts.value = retry.max_attempts ?? "";
  f.interval.value = retry.interval === undefined ? "" : typedOf(retry.interval);
  f.limit.value = String(s.catch_up_limit);
  f.depends.value = elements(texts.depends_on ?? "[]").map((d) => newDependency(members(d)));
  f.results.value = s.context_from === "dependencies";
  f.onFinal.value = texts.on_final ?? "";
}

/** Returns the members of the document, as JSON. */
export function optionsOf(f: Form): Texts {
  const interval = f.interval.value.trim(), priority = f.priority.value.trim();
  const retry = [
    ...(f.attempts.value ? [`"max_attempts":${Number(f.attempts.value)}`] : []),
    ...(interval ? [`"interval":${jsonOf(interval)}`] : []),
  ];
  return {
    ...(priority && { priority: jsonOf(priority) }),
    ...(retry.length > 0 && { retry: `{${retry.join(",")}}` }),
    ...(f.limit.value && { catch_up_limit: String(Number(f.limit.value)) }),
    ...(f.depends.value.length > 0 && { depends_on: JSON.stringify(f.depends.value.map(edge)) }),
    ...(f.results.value && { context_from: '"dependencies"' }),
    ...(f.onFinal.value && { on_final: f.onFinal.value }),
  };
}

function edge(d: ReturnType<typeof newDependency>): Schemas["Dependency"] {
  const task = d.task.value.trim(), type = d.type.value.trim(), key = d.key.value;
  const wait = d.waitFor.value.trim();
  return {
    ...(task && { task }), ...(type && { type }), ...(key && { key }),
    on_failure: d.onFailure.value as NonNullable<Schemas["Dependency"]["on_failure"]>,
    ...(wait && { wait_for: wait }),
  };
}

/** The fields of the options. */
export function OptionFields({ form: f }: { form: Form }) {
  return (
    <>
      <div class="columns">
        <Field label="Head start of its tasks, in seconds" name="priority"
          placeholder="60, or [60, 0] by stage" value={f.priority} />
        <Field label="Most attempts in a stage" name="retry.max_attempts" type="number" min="1"
          placeholder="as the stage has it" value={f.attempts} />
        <Field label="Pauses between attempts, in seconds" name="retry.interval"
          placeholder="3600, [10, 60], poly" value={f.interval} />
        <Field label="Most runs that are caught up, of all" name="catch_up_limit" type="number"
          min="1" placeholder="100" value={f.limit} />
      </div>
      <Several title="What each of its tasks waits for" one="dependency" name="depends_on"
        all={f.depends} make={newDependency}
        fields={(d, i) => <Dependency of={d} index={i} />} />
      <Check label="Its tasks get the results of what they have waited for" name="context_from"
        value={f.results} />
    </>
  );
}

interface DependencyProps {
  of: ReturnType<typeof newDependency>;
  index: number;
}

function Dependency({ of: d, index }: DependencyProps) {
  const name = `depends_on[${index}]`;
  return (
    <>
      <Field label="Id of the task" name={`${name}.task`} placeholder="resize.1.7"
        value={d.task} />
      <Field label="Or its type" name={`${name}.type`} maxLength={40} value={d.type} />
      <Field label="And its idempotency key" name={`${name}.key`} maxLength={255} value={d.key} />
      <Select label="If that task fails" name={`${name}.on_failure`} value={d.onFailure.value}
        options={["fail", "cancel", "run"]} change={(to) => (d.onFailure.value = to)} />
      <Field label="Wait at most" name={`${name}.wait_for`} placeholder="for ever; such as 24h"
        value={d.waitFor} />
      <Refusal name={name} />
    </>
  );
}
