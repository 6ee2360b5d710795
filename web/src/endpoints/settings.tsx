import { signal } from "@preact/signals";
import type { Schemas } from "../api.ts";
import { Check, Field } from "../parts/field.tsx";
import { More } from "../parts/more.tsx";
import { fillOutbound, newOutbound, OutboundFields, outboundOf } from "./outbound.tsx";

type Endpoint = Schemas["Endpoint"];
type Form = ReturnType<typeof newSettings>;

/** What is typed of an endpoint's settings that can be changed later. */
export const newSettings = () => ({
  url: signal(""), weight: signal("1"), most: signal(""), rate: signal(""), tasks: signal(""),
  wait: signal(""), duplicate: signal(false), outbound: newOutbound(),
});

/** Has the form show an endpoint's settings. */
export function fillSettings(f: Form, e: Endpoint): void {
  f.url.value = e.url;
  f.weight.value = String(e.weight);
  f.most.value = String(e.max_in_flight ?? "");
  f.rate.value = e.rate ?? "";
  f.tasks.value = String(e.batch?.max_tasks ?? "");
  f.wait.value = e.batch?.max_wait ?? "";
  f.duplicate.value = false;
  fillOutbound(f.outbound, e);
}

/** Returns the settings of a new endpoint. */
export function settingsOf(f: Form) {
  const batch = batchOf(f);
  return {
    url: f.url.value.trim(),
    weight: Number(f.weight.value),
    ...(f.most.value && { max_in_flight: Number(f.most.value) }),
    ...(f.rate.value && { rate: f.rate.value.trim() }),
    ...(Object.keys(batch).length > 0 && { batch }),
    ...(f.duplicate.value && { allow_duplicate: true }),
    ...outboundOf(f.outbound),
  };
}

/** Returns what changes an endpoint to what was typed. */
export function patchOf(f: Form, e: Endpoint): Schemas["EndpointPatch"] {
  const weight = Number(f.weight.value);
  if (e.listen) return { weight };
  const url = f.url.value.trim();
  return {
    weight,
    ...(url !== e.url && { url }),
    max_in_flight: Number(f.most.value),
    rate: f.rate.value.trim(),
    batch: batchOf(f),
    ...(f.duplicate.value && { allow_duplicate: true }),
    ...outboundOf(f.outbound, e),
  };
}

function batchOf(f: Form): Schemas["EndpointBatch"] {
  return {
    ...(f.tasks.value && { max_tasks: Number(f.tasks.value) }),
    ...(f.wait.value && { max_wait: f.wait.value.trim() }),
  };
}

interface FieldsProps {
  form: Form;
  /** What is changed; undefined: a new endpoint is made. */
  endpoint?: Endpoint;
}

/** The fields of the settings. One for listening has a weight only. */
export function SettingsFields({ form: f, endpoint: e }: FieldsProps) {
  const weight = (
    <Field label="Weight among the stage's endpoints; 0: no new deliveries" name="weight"
      type="number" min="0" required value={f.weight} />
  );
  if (e?.listen) return weight;
  return (
    <>
      <Field label="URL that deliveries are sent to" name="url" required maxLength={2048}
        placeholder="https://worker.example.com/inspect" value={f.url} />
      <div class="columns">
        {weight}
        <Field label="Most tasks in flight" name="max_in_flight" type="number" min="0"
          placeholder="no limit" value={f.most} />
        <Field label="Deliveries that begin" name="rate" placeholder="no limit; such as 100/s"
          value={f.rate} />
        <Field label="Most tasks in one request" name="batch.max_tasks" type="number" min="0"
          placeholder="each alone" value={f.tasks} />
        <Field label="How long a task waits for others" name="batch.max_wait"
          placeholder="not at all; such as 20ms" value={f.wait} />
      </div>
      <More>
        <OutboundFields form={f.outbound} endpoint={e} />
        <Check label="Another endpoint of the stage may have this URL" name="allow_duplicate"
          value={f.duplicate} />
      </More>
    </>
  );
}
