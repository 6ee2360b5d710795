import { answer, api, type Schemas } from "../api.ts";
import { count, latency } from "../format.ts";
import { useLoad } from "../load.ts";
import { Empty } from "../parts/empty.tsx";
import { useQuery } from "../parts/pager.tsx";
import { Problem } from "../parts/problem.tsx";
import { Row, Rows } from "../parts/rows.tsx";
import { Skeleton } from "../parts/skeleton.tsx";
import { Spans, spanOf } from "../parts/spans.tsx";
import { Status } from "../parts/status.tsx";
import { Time } from "../parts/time.tsx";
import { Title } from "../parts/title.tsx";

const pause = 20_000; // between two loads, in ms

/** The workers that run tasks now, or ended attempts lately: the worst first. */
export function Workers() {
  const [{ last = "15m", type }, link] = useQuery();
  const span = spanOf(last, "15m");
  const { data, ...load } = useLoad((signal) => answer(api.GET("/v1/workers", { signal,
    params: { query: { type, since: new Date(Date.now() - span.ms).toISOString() } } })),
  [span.ms, type], pause);
  return (
    <>
      <Title text="Workers" doc="workers.md#which-worker-is-slow-or-gone" />
      <Spans span={span} most="24h" />
      {type && <p>Only of the type {type}. <a href={link({ type: "" })}>Show all types</a></p>}
      <Problem error={load.error} retry={load.reload} />
      <Skeleton of={{ data, ...load }} />
      {data?.count === 0 && (
        <Empty title={`No attempt ended in the last ${span.name}`}>
          And no task is running. A worker is known by the name that it gives in the header{" "}
          <code>Asyncflow-Worker</code>.
        </Empty>
      )}
      {!!data?.count && (
        <>
          <Rows cards label="Workers" columns={["Worker", "State", "Type and stage",
            { n: "Running" }, "Last seen", { n: "Failed" }, { n: "Lost" }, { n: "p50 / p95" },
            "Endpoint"]}>
            {data.workers.map((w) => <WorkerRow key={JSON.stringify(w)} worker={w} />)}
          </Rows>
          <p class="quiet">
            {data.count > data.workers.length && `${count(data.workers.length)} of ${
              count(data.count)} workers are shown. `}
            {data.searched.complete ? "All" : "A sample of the attempts of that time:"}{" "}
            {count(data.searched.attempts)} attempts were read.
          </p>
        </>
      )}
    </>
  );
}

function WorkerRow({ worker: w }: { worker: Schemas["WorkerHealth"] }) {
  const query = new URLSearchParams({ type: w.type, stage: w.stage, children: "true",
    ...w.name && { worker: w.name } });
  return (
    <Row href={`/console/tasks?${query}`} name={w.name ?? w.claimer ?? "without a name"}>
      <td data-label="State"><Status status={w.state} /></td>
      <td data-label="For">{w.type} / {w.stage}</td>
      <td class="n" data-label="Running">{count(w.running)}</td>
      <td data-label="Last seen"><Time at={w.last_seen} /></td>
      <td class={w.failures ? "n bad" : "n"} data-label="Failed">
        {count(w.failures)} of {count(w.attempts)}
      </td>
      <td class={w.lost ? "n bad" : "n"} data-label="Lost">{count(w.lost)}</td>
      <td class="n" data-label="p50 / p95">
        {latency(w.duration)}
      </td>
      <td data-label="Endpoint">{w.url ?? (w.claimer ? "claims" : "–")}</td>
    </Row>
  );
}
