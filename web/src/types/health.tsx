import type { Schemas } from "../api.ts";
import { outage } from "../endpoints/outage.ts";
import { count } from "../format.ts";
import { For, Time } from "../parts/time.tsx";

interface HealthProps {
  type: Schemas["TaskType"];
  endpoints: Schemas["EndpointList"] | undefined; // of the type; undefined: not known yet
}

/** Says in words whether the tasks of a type are delivered. */
export function Health({ type: t, endpoints }: HealthProps) {
  if (t.paused_at) {
    return (
      <p class="health bad">
        <strong>Stopped</strong><For since={t.paused_at} />: it is paused
        {t.pause_reason && <>: <bdi>{t.pause_reason}</bdi></>}.
      </p>
    );
  }
  if (!endpoints) return <p class="health" aria-busy="true">…</p>;
  const stages = t.stages.filter((s) => (s.mode ?? "push") === "push" && !s.wait);
  const troubles = stages.map((s) => <Trouble key={s.name} stage={s.name} of={endpoints} />)
    .filter((_, i) => troubled(endpoints, stages[i]!.name));
  return (
    <>
      {troubles.length === 0 && (
        <p class={`health ${failing(endpoints) < 0.1 ? "good" : "busy"}`}>
          <strong>Delivering</strong>
          {stages.length === 0 && ": workers claim its tasks"}
          <Failing type={t.name} of={endpoints} />.
        </p>
      )}
      {troubles}
      {t.ramp_until && <p>It is ramped up, and back in full <Time at={t.ramp_until} />.</p>}
    </>
  );
}

const sum = ({ data }: Schemas["EndpointList"], of: "attempts" | "failures") =>
  data.reduce((n, e) => n + e.health[of], 0);

/** Returns the share of the attempts of the last minutes that failed. */
const failing = (all: Schemas["EndpointList"]): number =>
  sum(all, "failures") / Math.max(1, sum(all, "attempts"));

/** Says how many attempts failed of late, and leads to their errors. */
function Failing({ type, of }: { type: string; of: Schemas["EndpointList"] }) {
  const failed = sum(of, "failures");
  if (failed === 0) return null;
  return (
    <>, but {count(failed)} of {count(sum(of, "attempts"))} attempts{" "}
      <a href={`/console/failures?type=${type}`}>failed</a> in the last 5 minutes</>
  );
}

/** Says why an endpoint gets no deliveries. */
function Why({ of: e }: { of: Schemas["Endpoint"] }) {
  const { reason } = e.health;
  return <>{outage(e)}{reason && <>: <bdi>{reason}</bdi></>}</>;
}

const ofStage = ({ data }: Schemas["EndpointList"], stage: string) =>
  data.filter((e) => e.stage === stage);

/** Reports whether a stage has no endpoint, or one that gets no deliveries. */
function troubled(list: Schemas["EndpointList"], stage: string): boolean {
  const all = ofStage(list, stage);
  return all.length === 0 ? !list.next_cursor : all.some(outage);
}

function Trouble({ stage, of: list }: { stage: string; of: Schemas["EndpointList"] }) {
  const all = ofStage(list, stage), out = all.filter(outage);
  if (all.length === 0) {
    return (
      <p class="health bad"><strong>Stopped</strong> in stage {stage}: it has no endpoint.</p>
    );
  }
  const whole = out.length === all.length && !list.next_cursor;
  const since = out.map((e) => e.health.since ?? e.updated_at).sort();
  return (
    <p class={whole ? "health bad" : "health busy"}>
      <strong>{whole ? "Stopped" : "Delivering"}</strong>
      {whole
        ? <><For since={since.at(-1)} /> in stage {stage}: <Why of={out[0]!} />.</>
        : <>, but {out.length} of {all.length} endpoints of stage {stage} get
          nothing<For since={since[0]} />: <Why of={out[0]!} />.</>}
    </p>
  );
}
