import { useRoute } from "preact-iso";
import { answer, api, type Schemas } from "../api.ts";
import { count, span } from "../format.ts";
import { useLoad } from "../load.ts";
import { Problem } from "../parts/problem.tsx";
import { Skeleton } from "../parts/skeleton.tsx";
import { Status } from "../parts/status.tsx";
import { Time } from "../parts/time.tsx";
import { Title } from "../parts/title.tsx";
import { branches } from "../parts/ways.tsx";
import { HistoryCharts } from "../chart/history.tsx";
import { Submit } from "../submit/submit.tsx";
import { TypeActions } from "./actions.tsx";
import { Editor } from "./editor.tsx";
import { Health } from "./health.tsx";
import { deadline, flowLimits, limits } from "./limits.ts";
import { Retries } from "./retries.tsx";
import { Rolls } from "./rolls.tsx";
import { Stages } from "./stages.tsx";
import { TypeStats } from "./stats.tsx";

/** All of one task type. */
export function Type() {
  const name = useRoute().params.type ?? "";
  const type = useLoad((signal) => answer(api.GET("/v1/task-types/{type}",
    { signal, params: { path: { type: name } } })), [name], 3000);
  const endpoints = useLoad((signal) => answer(api.GET("/v1/endpoints",
    { signal, params: { query: { type: name } } })), [name], 3000);
  const t = type.data;
  return (
    <>
      <Title text={name} doc="stages.md">{t?.paused_at && <Status status="paused" />}</Title>
      <Problem error={type.error} retry={type.reload} />
      <Skeleton of={type} />
      {t && (
        <>
          <div class="top">
            <Submit key={name} type={name} types={[name]} />
            <Editor type={name} saved={type.reload} />
            <TypeActions type={t} changed={type.reload} />
          </div>
          <Health type={t} endpoints={endpoints.data} />
          <HistoryCharts type={name} />
          <TypeStats type={name} />
          <Problem error={endpoints.error} retry={endpoints.reload} />
          <Stages type={t} endpoints={endpoints.data} />
          <p><a href={`/console/workers?type=${name}`}>Which workers are slow or gone</a></p>
          <Facts type={t} />
          <Retries stages={t.stages} />
          <Rolls type={name} />
        </>
      )}
    </>
  );
}

function Facts({ type: t }: { type: Schemas["TaskType"] }) {
  const { tasks: kept, context: contents } =
    typeof t.retention === "object" ? t.retention : { tasks: t.retention };
  return (
    <section>
      <h2>Settings</h2>
      <dl class="facts">
        <div><dt>Version</dt><dd>{t.version}, <Time at={t.updated_at} /></dd></div>
        <div><dt>Created</dt><dd><Time at={t.created_at} /></dd></div>
        <div><dt>Limits</dt><dd>{limits(t) || "none"}</dd></div>
        <div>
          <dt>Limits of each flow key</dt>
          <dd>{t.flow ? flowLimits(t.flow) : "none"}</dd>
        </div>
        <div><dt>Tasks that one lease takes</dt><dd>{count(t.schedule_limit)}</dd></div>
        {t.schedule_interval !== "0s" && (
          <div><dt>Between two leases</dt><dd>{span(t.schedule_interval)}</dd></div>
        )}
        {branches(t.stages) && t.max_steps !== undefined && (
          <div><dt>A task visits at most</dt><dd>{count(t.max_steps)} stages</dd></div>
        )}
        {kept && <div><dt>Ended tasks are kept for</dt><dd>{span(kept)}</dd></div>}
        {contents && <div><dt>Their contents are kept for</dt><dd>{span(contents)}</dd></div>}
        {t.roll_rows !== undefined && t.roll_age && (
          <div><dt>A roll has</dt><dd>{count(t.roll_rows)} tasks, or {span(t.roll_age)}</dd></div>
        )}
        {t.start_by && <div><dt>Tasks must begin by</dt><dd>{deadline(t.start_by)}</dd></div>}
        {t.end_by && <div><dt>Tasks must end by</dt><dd>{deadline(t.end_by)}</dd></div>}
        {t.searchable && (
          <div>
            <dt>Searchable by</dt>
            <dd>
              {t.searchable.map((field) => (
                `${field} (from roll ${t.searchable_from?.[field] ?? "?"} on)`)).join(", ")}
            </dd>
          </div>
        )}
        {Object.entries(t.stage_mapping ?? {}).map(([from, to]) => (
          <div key={from}><dt>Tasks of the removed stage {from}</dt><dd>go on in {to}</dd></div>
        ))}
      </dl>
    </section>
  );
}
