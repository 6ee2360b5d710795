import { type Signal, signal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { answer, api, checkJSON, named, type Schemas, type Tagged, unchanged } from "../api.ts";
import { milliseconds } from "../format.ts";
import { useLoad } from "../load.ts";
import { Action } from "../parts/action.tsx";
import { Area, Field, Instant, Select } from "../parts/field.tsx";
import { More } from "../parts/more.tsx";
import { Problem } from "../parts/problem.tsx";
import { fillOptions, newOptions, OptionFields, optionsOf } from "./options.tsx";
import { when } from "./when.ts";

type Schedule = Schemas["Schedule"];
type Form = ReturnType<typeof newForm>;

const newForm = () => ({
  name: signal(""), type: signal(""), by: signal<"every" | "cron">("every"), every: signal(""),
  cron: signal(""), zone: signal(""), context: signal("{}"), overlap: signal<string>("queue"),
  catchUp: signal<string>("last"), starts: signal(""), ends: signal(""), options: newOptions(),
  opened: undefined as Tagged<Schedule> | undefined, // what is changed, as it was then
});

interface Props {
  /** What is changed; undefined: a new schedule is made. */
  schedule?: Schedule;
  /** The texts of the schedule's members, as they are stored. */
  texts?: Record<string, string>;
  etag?: string | undefined;
  /** Called with the schedule's name when it is saved. */
  saved: (name: string) => Promise<void> | void;
}

/** The button for the form of a schedule. */
export function SetSchedule({ schedule: s, texts = {}, etag, saved }: Props) {
  const f = useMemo(newForm, []);
  const begin = () => {
    if (!s) return; // what was typed stays
    f.opened = { value: s, etag };
    fill(f, s, texts);
  };
  const run = async () => {
    const name = s?.name ?? f.name.value;
    const text = documentOf(f);
    const put = answer(api.PUT("/v1/schedules/{name}", {
      params: { path: { name }, header: unchanged(f.opened) },
      body: { type: "", context: null },
      bodySerializer: () => text,
    }));
    await (s ? put : named("name", "is that of another schedule", put));
    await saved(name);
    return `${name} is saved`;
  };
  return <Action label={s ? "Edit" : "New schedule"} scope="manage" begin={begin} run={run}
    ask={<Fields form={f} isNew={!s} />} />;
}

function fill(f: Form, s: Schedule, texts: Record<string, string>): void {
  f.type.value = s.type;
  f.by.value = s.every ? "every" : "cron";
  f.every.value = s.every ?? "";
  f.cron.value = s.cron ?? "";
  f.zone.value = s.time_zone ?? "";
  f.context.value = texts.context ?? "null";
  f.overlap.value = s.overlap;
  f.catchUp.value = s.catch_up;
  f.starts.value = s.starts_at ?? "";
  f.ends.value = s.ends_at ?? "";
  fillOptions(f.options, s, texts);
}

/** Returns the document as JSON. The context is in it as it was typed. */
function documentOf(f: Form): string {
  checkJSON("context", f.context.value);
  const members: string[] = [];
  const add = (name: string, text: string) => members.push(`${JSON.stringify(name)}:${text}`);
  const addText = (name: string, value: Signal<string>) => {
    if (value.value.trim()) add(name, JSON.stringify(value.value.trim()));
  };
  add("context", f.context.value);
  addText("type", f.type);
  if (f.by.value === "every") addText("every", f.every);
  else addText("cron", f.cron);
  if (f.by.value === "cron") addText("time_zone", f.zone);
  addText("overlap", f.overlap);
  addText("catch_up", f.catchUp);
  addText("starts_at", f.starts);
  addText("ends_at", f.ends);
  for (const [name, text] of Object.entries(optionsOf(f.options))) add(name, text);
  return `{${members.join(",")}}`;
}

function Fields({ form: f, isNew }: { form: Form; isNew: boolean }) {
  const types = useLoad((signal) => answer(api.GET("/v1/task-types", { signal })), []);
  const set = (value: Signal<string>) => (to: string) => (value.value = to);
  return (
    <>
      <Problem error={types.error} retry={types.reload} />
      {isNew && <Field label="Name" name="name" required maxLength={40} value={f.name} />}
      <Select label="Type of its tasks" name="type" required value={f.type.value}
        options={types.data?.data.map((t) => t.name) ?? []} change={set(f.type)} />
      <Times form={f} />
      <Area label="Context of each task" name="context" rows={6} value={f.context} />
      <div class="columns">
        <Instant label="No run before" name="starts_at" value={f.starts.value}
          change={set(f.starts)} />
        <Instant label="No run at or after" name="ends_at" value={f.ends.value}
          change={set(f.ends)} />
        <Select label="If the last task is not final" name="overlap" value={f.overlap.value}
          options={["queue", "skip", "replace"]} change={set(f.overlap)} />
        <Select label="Missed runs" name="catch_up" value={f.catchUp.value}
          options={["last", "none", "all"]} change={set(f.catchUp)} />
      </div>
      <More>
        <OptionFields form={f.options} />
      </More>
    </>
  );
}

/** When it runs, also in words. */
function Times({ form: f }: { form: Form }) {
  const every = f.by.value === "every";
  const known = every ? milliseconds(f.every.value) > 0 : f.cron.value.trim() !== "";
  const words = known && when(every
    ? { every: f.every.value }
    : { cron: f.cron.value.trim(), time_zone: f.zone.value.trim() || "UTC" });
  return (
    <>
      <Select label="It runs by" value={f.by.value} options={["every", "cron"]}
        change={(to) => (f.by.value = to as "every" | "cron")} />
      {every
        ? <Field label="Every, such as 15m" name="every" required value={f.every} />
        : (
          <div class="columns">
            <Field label="Cron: minute, hour, day, month, weekday" name="cron" required
              maxLength={255} placeholder="30 3 * * *" value={f.cron} />
            <Field label="Time zone" name="time_zone" maxLength={64}
              placeholder="UTC; such as Europe/Berlin" value={f.zone} />
          </div>
        )}
      <p aria-live="polite">{words && <>It runs {words}.</>}</p>
    </>
  );
}
