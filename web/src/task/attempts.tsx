import { answer, api, type Schemas } from "../api.ts";
import { now } from "../clock.ts";
import { claimerOf, duration, words } from "../format.ts";
import { rowsOf } from "../json.ts";
import { useLoad } from "../load.ts";
import { Json } from "../parts/json.tsx";
import { Pager, useQuery } from "../parts/pager.tsx";
import { Problem } from "../parts/problem.tsx";
import { Status } from "../parts/status.tsx";
import { Time } from "../parts/time.tsx";
import { Worker } from "./run.tsx";

/** An attempt, with the text of its output as it is stored. */
type Row = Schemas["Attempt"] & {
  text: string | undefined;
};

/** The attempts of a task: a chart of when they ran, and a list. */
export function Attempts({ task }: { task: Schemas["Task"] }) {
  const [query] = useQuery();
  const state = `${task.status} ${task.stage} ${task.attempt}`;
  const list = useLoad(async (signal) => {
    const text = await answer(api.GET("/v1/tasks/{id}/attempts", { signal, parseAs: "text",
      params: { path: { id: task.id }, query: { cursor: query.cursor, limit: 100 } } })) as string;
    const page = JSON.parse(text) as Schemas["AttemptList"];
    const texts = rowsOf(text);
    const rows: Row[] = page.data.map((a, i) => ({ ...a, text: texts[i]?.output }));
    return { rows, next: page.next_cursor };
  }, [task.id, state, query.cursor]);
  const { rows = [], next } = list.data ?? {};
  return (
    <section>
      <h2>Attempts</h2>
      <Problem error={list.error} retry={list.reload} />
      {rows.length === 0 && !list.loading && <p class="quiet">None has ended yet.</p>}
      {rows.length > 0 && <Chart rows={rows} begin={task.created_at} />}
      <ol class="attempts">{rows.map((a) => <Attempt key={a.seq} attempt={a} />)}</ol>
      <Pager next={next} />
    </section>
  );
}

function Attempt({ attempt: a }: { attempt: Row }) {
  return (
    <li class={a.outcome}>
      <div>
        <strong>{a.stage}</strong> attempt {a.attempt}: <Status status={a.outcome} />
        {a.final && <> → {a.final}</>}
        {a.next_stage && <> → <strong>{a.next_stage}</strong></>} <Time at={a.at} />
        {a.wait_ms !== undefined && <>, waited {duration(a.wait_ms)}</>}
        {a.duration_ms !== undefined && <>, took {duration(a.duration_ms)}</>}
        {a.status_code !== undefined && <>, answered {a.status_code}</>}
        {a.next_time && <Next at={a.next_time} />}
      </div>
      {(a.endpoint || a.claimer || a.worker) && <div class="quiet">
        {a.endpoint ?? (a.claimer && `claimed by ${claimerOf(a)}`)}
        {a.worker && <> worker <Worker name={a.worker} /></>}
        {a.node && <>, node <code>{a.node}</code></>}
      </div>}
      {a.outcome === "changed" && a.subject && <div class="quiet">by {a.subject}</div>}
      <Decided attempt={a} />
      {a.error && <pre class="problem">{a.error}</pre>}
      <Json label="Output" text={a.text} />
      {a.output_excerpt && (
        <Json label={`Start of the output, of ${a.output_bytes} bytes`} text={a.output_excerpt} />
      )}
    </li>
  );
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

/** Bars of when attempts ran, from the submit to the last end. */
function Chart({ rows, begin }: { rows: Row[]; begin: string }) {
  const from = Date.parse(begin);
  const to = Math.max(...rows.map((a) => Date.parse(a.at)), from + 1);
  const place = (ms: number) => ((ms - from) / (to - from)) * 1000;
  const shown = rows.slice(-50);
  return (
    <figure class="chart">
      <svg viewBox={`0 0 1000 ${shown.length * 10}`} preserveAspectRatio="none" role="img"
        height={Math.max(shown.length * 10, 20)}
        aria-label={`When each attempt ran, over ${duration(to - from)}`}>
        {shown.map((a, i) => {
          const end = place(Date.parse(a.at));
          const width = Math.max(place(from + (a.duration_ms ?? 0)), 4);
          return (
            <rect key={a.seq} class={a.outcome} x={Math.max(end - width, 0)} y={i * 10 + 1}
              width={width} height="8">
              <title>{`${a.stage}, attempt ${a.attempt}: ${words(a.outcome)}`}</title>
            </rect>
          );
        })}
      </svg>
      <figcaption class="quiet">
        <span>submitted</span><span>{duration(to - from)} later</span>
      </figcaption>
    </figure>
  );
}
