import { answer, api, type Schemas } from "../api.ts";
import { now } from "../clock.ts";
import { claimerOf, duration } from "../format.ts";
import { rowsOf } from "../json.ts";
import { type Loaded, useLoad } from "../load.ts";
import { Json } from "../parts/json.tsx";
import { Pager, useQuery } from "../parts/pager.tsx";
import { Problem } from "../parts/problem.tsx";
import { Status } from "../parts/status.tsx";
import { Time } from "../parts/time.tsx";
import { ErrorText } from "./error.tsx";
import { Worker } from "./run.tsx";
import type { WholeTask } from "./whole.ts";

/** An attempt, with the text of its output as it is stored. */
export type Row = Schemas["Attempt"] & {
  text: string | undefined;
};

/** The attempts of a task on the page of the list that the URL names. */
export interface AttemptRows {
  rows: Row[];
  next: string | undefined;
  /** There are no earlier ones. */
  first: boolean;
}

/**
 * Returns what the stage of a task in line gets, as JSON: the last output among the attempts or,
 * without one, the context. "": that isn't known; undefined: not yet.
 */
export function inputOf(whole: WholeTask, list: Loaded<AttemptRows>): string | undefined {
  if (!list.data) return list.error && "";
  const { rows, first, next } = list.data;
  if (!first || next) return "";
  const last = rows.findLast((a) => a.text !== undefined || a.output_excerpt !== undefined);
  return (last ? last.text : whole.context) ?? "";
}

/** Loads the attempts of a task, again when another has ended, or the task was changed. */
export function useAttempts({ task, etag = "" }: WholeTask): Loaded<AttemptRows> {
  const [query] = useQuery();
  const state = `${task.status} ${task.stage} ${task.attempt} ${etag}`;
  return useLoad<AttemptRows>(async (signal) => {
    const text = await answer(api.GET("/v1/tasks/{id}/attempts", { signal, parseAs: "text",
      params: { path: { id: task.id }, query: { cursor: query.cursor, limit: 100 } } })) as string;
    const page = JSON.parse(text) as Schemas["AttemptList"];
    const texts = rowsOf(text);
    const rows: Row[] = page.data.map((a, i) => ({ ...a, text: texts[i]?.output }));
    return { rows, next: page.next_cursor, first: !query.cursor };
  }, [task.id, state, query.cursor]);
}

interface AttemptsProps {
  task: Schemas["Task"];
  list: Loaded<AttemptRows>;
}

/** The attempts of a task as a list. */
export function Attempts({ task, list }: AttemptsProps) {
  const { rows = [], next } = list.data ?? {};
  const known = useEndpoints(task.type, rows.some((a) => a.endpoint));
  return (
    <section>
      <h2>Attempts</h2>
      <Problem error={list.error} retry={list.reload} />
      {rows.length === 0 && !list.loading && <p class="quiet">None has ended yet.</p>}
      <ol class="attempts">
        {rows.map((a) => (
          <Attempt key={a.seq} attempt={a} endpoint={known[`${a.stage} ${a.endpoint}`]} />
        ))}
      </ol>
      <Pager next={next} />
    </section>
  );
}

/** Returns the ids of a type's endpoints, by stage and URL: an attempt has only these. */
function useEndpoints(type: string, needed: boolean): Record<string, string> {
  const list = useLoad(async (signal) => needed ? (await answer(api.GET("/v1/endpoints",
    { signal, params: { query: { type } } }))).data : [], [type, needed]);
  return Object.fromEntries((list.data ?? []).map((e) => [`${e.stage} ${e.url}`, e.id]));
}

interface AttemptProps {
  attempt: Row;
  endpoint: string | undefined; // its id, if it is still there
}

function Attempt({ attempt: a, endpoint }: AttemptProps) {
  return (
    <li class={a.outcome}>
      <div>
        <strong>{a.stage}</strong> attempt {a.attempt}: <Status status={a.outcome} />
        {a.final && a.final !== a.outcome && <> → {a.final}</>}
        {a.next_stage && <> → <strong>{a.next_stage}</strong></>} <Time at={a.at} />
        {a.wait_ms !== undefined && <>, waited {duration(a.wait_ms)}</>}
        {a.duration_ms !== undefined && <>, took {duration(a.duration_ms)}</>}
        {a.status_code !== undefined && <>, answered {a.status_code}</>}
        {a.next_time && <Next at={a.next_time} />}
      </div>
      {(a.endpoint || a.claimer || a.worker) && <div class="quiet">
        {endpoint && <a href={`/console/endpoints/${endpoint}`}>{a.endpoint}</a>}
        {!endpoint && (a.endpoint ?? (a.claimer && `claimed by ${claimerOf(a)}`))}
        {a.worker && <> worker <Worker name={a.worker} /></>}
        {a.node && <>, node <code>{a.node}</code></>}
      </div>}
      {a.outcome === "changed" && a.subject && <div class="quiet">by {a.subject}</div>}
      {a.changes?.map((c) => (
        <div class="quiet">
          {c.field}: {was(c.before)} becomes {was(c.after)}
        </div>
      ))}
      <Decided attempt={a} />
      {a.error && (
        <ErrorText text={a.error} of={`the error of attempt ${a.attempt} in ${a.stage}`} />
      )}
      <Json label="Output" text={a.text} />
      {a.output_excerpt && (
        <Json label={`Start of the output, of ${a.output_bytes} bytes`} text={a.output_excerpt} />
      )}
    </li>
  );
}

/** An option of a task before or after a change. */
function was(option: unknown) {
  return option === undefined ? "none" : <code>{JSON.stringify(option)}</code>;
}

/** Who decided by a link, if that is how the stage ended. */
function Decided({ attempt: a }: { attempt: Row }) {
  if (a.outcome !== "signalled" || !a.text) return null;
  const d = JSON.parse(a.text) as unknown;
  if (typeof d !== "object" || d === null || !("decision" in d && "by" in d)) return null;
  return <div>{String(d.by)} decided: <strong>{String(d.decision)}</strong></div>;
}

/** When the next attempt is due, until then. */
function Next({ at }: { at: string }) {
  return Date.parse(at) > now.value ? <>, next <Time at={at} /></> : null;
}
