import { answer, api, type Schemas } from "../api.ts";
import { Enable, Register } from "../endpoints/enable.tsx";
import { nameOf } from "../endpoints/endpoints.tsx";
import { outage } from "../endpoints/outage.ts";
import { count, tasks } from "../format.ts";
import { useLoad } from "../load.ts";
import { For, Time } from "../parts/time.tsx";
import { Resume } from "../types/actions.tsx";
import { isStill } from "./trouble.ts";

type Stats = Schemas["Stats"];
type Endpoint = Schemas["Endpoint"];

const pause = 5000; // between two loads, in ms
const most = 5; // types

/** Says where due tasks go nowhere, why, and what can be done here. */
export function Still({ stats }: { stats: Stats[] }) {
  const all = [...stats.filter((s) => !s.paused && s.backlog?.some(isStill)),
    ...stats.filter((s) => s.paused)];
  if (all.length === 0) return null;
  const more = all.length - most;
  return (
    <section class="still">
      <h2>Deliveries stand still</h2>
      {all.slice(0, most).map((s) => s.paused
        ? <PausedType key={s.type} stats={s} /> : <StillType key={s.type} stats={s} />)}
      {more > 0 && <p><a href="/console/types">and {count(more)} more types</a></p>}
    </section>
  );
}

function PausedType({ stats: s }: { stats: Stats }) {
  const load = useLoad((signal) => answer(api.GET("/v1/task-types/{type}",
    { signal, params: { path: { type: s.type } } })), [s.type]);
  const t = load.data;
  return (
    <div class="problem">
      <a href={`/console/types/${s.type}`}>{s.type}</a> is paused<For since={t?.paused_at} />
      {t?.pause_reason && <>: <bdi>{t.pause_reason}</bdi></>}.
      {s.pending > 0 && <> {tasks(s.pending)} {s.pending === 1 ? "is" : "are"} due.</>}{" "}
      {t?.paused_at && <Resume type={t} changed={() => void load.reload()} />}
    </div>
  );
}

/** The stages of a type whose tasks wait for an endpoint. */
function StillType({ stats: s }: { stats: Stats }) {
  const load = useLoad((signal) => answer(api.GET("/v1/endpoints",
    { signal, params: { query: { type: s.type } } })), [s.type], pause);
  const stages = [...new Set(s.backlog?.filter(isStill).map((b) => b.stage ?? ""))];
  return (
    <>
      {stages.map((stage) => {
        const waiting = s.backlog?.filter((b) => isStill(b) && (b.stage ?? "") === stage) ?? [];
        const n = waiting.reduce((sum, b) => sum + b.tasks, 0);
        const since = waiting.map((b) => b.oldest_due).sort()[0];
        const own = load.data?.data.filter((e) => e.stage === stage) ?? [];
        const none = load.data && own.length === 0 && !load.data.next_cursor;
        const sick = own.filter(outage);
        return (
          <div key={stage} class="problem">
            {tasks(n)} of <a href={`/console/types/${s.type}`}>{s.type}</a>{" "}
            {n === 1 ? "waits" : "wait"} in the stage {stage},
            {n > 1 && " the oldest"}<For since={since} />
            {none && <>: it has no endpoint. <Register type={s.type} stage={stage} /></>}
            {sick.length > 0 && ":"}
            {sick.slice(0, most).map((e) => (
              <Sick key={e.id} endpoint={e} changed={load.reload} />
            ))}
          </div>
        );
      })}
    </>
  );
}

/** One endpoint that gets no deliveries, and why. */
function Sick({ endpoint: e, changed }: { endpoint: Endpoint; changed: () => Promise<void> }) {
  const { state, until, reason } = e.health;
  return (
    <p>
      <a href={`/console/endpoints/${e.id}`}>{nameOf(e)}</a>: {outage(e)}
      {(reason || e.verification_error) && <>: <bdi>{reason || e.verification_error}</bdi></>}.
      {until && <> The next probe is <Time at={until} />.</>}{" "}
      {state !== "closed" && <Enable endpoint={e} changed={changed} />}
    </p>
  );
}
