import type { Schemas } from "../api.ts";
import { Health } from "../endpoints/health.tsx";
import { count, percent, span } from "../format.ts";
import { Status } from "../parts/status.tsx";
import { branches, nameOf, nexts, Ways } from "../parts/ways.tsx";
import { given } from "./given.ts";

interface StagesProps {
  type: Schemas["TaskType"];
  endpoints: Schemas["EndpointList"] | undefined; // undefined: not known yet
}

/** The stages of a type in their order, each with its endpoints. */
export function Stages({ type, endpoints }: StagesProps) {
  return (
    <section>
      <h2>Stages</h2>
      {branches(type.stages) && <Ways stages={type.stages} />}
      <ol class="stages">
        {type.stages.map((s, i) => (
          <li key={s.name}>
            <h3>{s.name}</h3>
            <StageFacts stage={s} next={s.next && after(type.stages, i)} />
            {(s.mode ?? "push") === "push" && endpoints && (
              <Endpoints of={endpoints.data.filter((e) => e.stage === s.name)} />
            )}
          </li>
        ))}
      </ol>
      {endpoints?.next_cursor && (
        <p><a href={`/console/endpoints?type=${type.name}`}>There are more endpoints</a></p>
      )}
    </section>
  );
}

/** Says with what a task may go on after a stage. */
function after(stages: Schemas["Stage"][], at: number): string {
  return nexts(stages, at).map((to) => nameOf(stages, to)).join(" or ");
}

interface StageFactsProps {
  stage: Schemas["Stage"];
  next: string | undefined;
}

function StageFacts({ stage: s, next }: StageFactsProps) {
  const facts: [string, string | undefined | false][] = [
    ["Tasks", s.wait && `wait for the signal ${s.wait.signal}, for ${span(s.wait.timeout)}`],
    ["Tasks are", !s.wait && (s.mode === "claim" ? "claimed by workers" : "sent to endpoints")],
    ["Without the signal comes", s.wait && (s.wait.on_timeout?.next ?? "the end: the task fails")],
    ["People decide by links", s.wait?.links && decisions(s.wait.links)],
    ["Begin within", s.start_by && span(s.start_by)],
    ["Answer within", s.timeout && span(s.timeout)],
    ["Work of at most", s.max_processing_time && span(s.max_processing_time)],
    ["May be put off for", s.max_snooze && span(s.max_snooze)],
    ["Then comes", next],
    ["If it fails, then comes", s.on_failure?.next],
    ["May start", s.spawn?.join(", ")],
    ["Is given", s.deliver && given(s.deliver)],
    ["Head start", !!s.priority && `${count(s.priority)} s`],
    ["Fans out", s.fan_out && fanOut(s.fan_out)],
    ["Quorum", s.quorum && quorum(s.quorum)],
    ["A claimer is shown", s.window && `${count(s.window.tasks)} tasks per ${span(s.window.per)}`],
    ["A claimer is", s.mode === "claim" && (s.window || s.quorum) && identity(s)],
  ];
  return (
    <dl class="facts">
      {facts.map(([name, text]) => text && <div key={name}><dt>{name}</dt><dd>{text}</dd></div>)}
    </dl>
  );
}

function decisions(l: Schemas["Links"]): string {
  return ((typeof l === "object" && l.decisions) || ["approve", "reject"]).join(", ");
}

function fanOut(f: Schemas["FanOut"]): string {
  const into = f.shards
    ? `into ${count(f.shards)} shards`
    : `over ${f.items || "the items of its context"}`;
  const parallel = f.max_parallel ? `, ${count(f.max_parallel)} at once` : "";
  const most = f.results === "settled" ? `${parallel}; results say how each ended` : parallel;
  const on = f.on_child_failure ?? "fail_fast";
  if (on === "fail_fast") return `${into}${most}; fails with the first child that fails`;
  if (on === "all_settled") return `${into}${most}; goes on whatever its children end as`;
  const { count: n, percent: share } = on.tolerate;
  return `${into}${most}; tolerates ${n !== undefined ? n : percent((share ?? 0) / 100)} failures`;
}

function quorum(q: Schemas["Quorum"]): string {
  const about = q.agree_on ? ` on ${q.agree_on}` : "";
  const errors = q.max_errors ? `, ${q.max_errors} errors` : "";
  const trust = q.trust ? `; a claimer is trusted after ${q.trust.after}` : "";
  return `${q.votes} of at most ${q.max_votes} votes agree${about}${errors}${trust}`;
}

function identity(s: Schemas["Stage"]): string {
  return s.identity === "unchecked"
    ? "whoever the call names (identity: unchecked)"
    : "who the token says";
}

function Endpoints({ of }: { of: Schemas["Endpoint"][] }) {
  if (of.length === 0) {
    return (
      <p>
        It has no endpoint, so its tasks wait. Register one:{" "}
        <code>asyncflow endpoints create</code>
      </p>
    );
  }
  return (
    <ul class="plain">
      {of.map((e) => (
        <li key={e.id}>
          <a data-row href={`/console/endpoints/${e.id}`}>{e.url || "asyncflow listen"}</a>{" "}
          <Health state={e.health.state} />
          {e.verification === "unverified" && <> <Status status="unverified" /></>}
          <span class="quiet">
            {" "}{count(e.health.failures)} of {count(e.health.attempts)} attempts failed in
            5 min{of.length > 1 && `, weight ${e.weight}`}
          </span>
        </li>
      ))}
    </ul>
  );
}
