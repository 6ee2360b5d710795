import { useLocation } from "preact-iso";
import { answer, api, type Schemas } from "../api.ts";
import { count, latency } from "../format.ts";
import { useLoad } from "../load.ts";
import { Empty } from "../parts/empty.tsx";
import { Select } from "../parts/field.tsx";
import { Folded } from "../parts/filter.tsx";
import { Pager, useQuery } from "../parts/pager.tsx";
import { Problem } from "../parts/problem.tsx";
import { Row, Rows } from "../parts/rows.tsx";
import { Skeleton } from "../parts/skeleton.tsx";
import { Status } from "../parts/status.tsx";
import { Title } from "../parts/title.tsx";
import { limits } from "../types/limits.ts";
import { NewEndpoint } from "./create.tsx";
import { Health } from "./health.tsx";

/** The endpoints by type and stage, with their health. */
export function Endpoints() {
  const [{ type, stage, cursor }] = useQuery();
  const list = useLoad((signal) => answer(api.GET("/v1/endpoints",
    { signal, params: { query: { type, cursor } } })), [type, cursor], 3000);
  const shown = list.data?.data.filter((e) => !stage || e.stage === stage);
  return (
    <>
      <Title text="Endpoints" doc="endpoints.md" />
      <NewEndpoint type={type} stage={stage} />
      <Filters type={type} stage={stage} />
      <Problem error={list.error} retry={list.reload} />
      <Skeleton of={list} />
      {shown?.length === 0 && list.data?.next_cursor && (
        <Empty title="No endpoint on this page matches">The next page may have some.</Empty>
      )}
      {shown?.length === 0 && !list.data?.next_cursor && (
        <Empty title={type ? "No endpoint matches" : "There are no endpoints yet"}>
          Tasks wait while their stage has none. Register one with{" "}
          <code>asyncflow endpoints create</code>, or in the file for{" "}
          <code>asyncflow types apply</code>. Workers that claim tasks need none.
        </Empty>
      )}
      {!!shown?.length && <EndpointRows endpoints={shown} />}
      <Pager next={list.data?.next_cursor} />
    </>
  );
}

function Filters({ type, stage }: { type: string | undefined; stage: string | undefined }) {
  const { route } = useLocation();
  const [, link] = useQuery();
  const types = useLoad((signal) => answer(api.GET("/v1/task-types", { signal })), []);
  const all = types.data?.data ?? [];
  return (
    <Folded filter={{ type, stage }}>
      <form class="filters" onSubmit={(e) => e.preventDefault()}>
        <Select label="Type" value={type} any options={all.map((t) => t.name)}
          change={(to) => route(link({ type: to, stage: "", cursor: "" }))} />
        {type && (
          <Select label="Stage" value={stage} any
            options={all.find((t) => t.name === type)?.stages.map((s) => s.name) ?? []}
            change={(to) => route(link({ stage: to, cursor: "" }))} />
        )}
      </form>
    </Folded>
  );
}

function EndpointRows({ endpoints }: { endpoints: Schemas["Endpoint"][] }) {
  return (
    <Rows cards label="Endpoints" columns={["Endpoint", "Type and stage", "Health",
      { n: "Failed in 5 min" }, { n: "p50 / p99" }, { n: "Weight" }, "Limits", "Challenge"]}>
      {endpoints.map((e) => (
        <Row key={e.id} href={`/console/endpoints/${e.id}`} name={nameOf(e)}>
          <td data-label="For">{e.type} / {e.stage}</td>
          <td data-label="Health">
            <div>
              <Health state={e.health.state} />
              {e.health.state !== "closed" && <div class="cut quiet">{e.health.reason}</div>}
            </div>
          </td>
          <td class={e.health.failures ? "n bad" : "n"} data-label="Failed">
            {count(e.health.failures)} of {count(e.health.attempts)}
          </td>
          <td class="n" data-label="p50 / p99">{latency(e.health.latency)}</td>
          <td class="n" data-label="Weight">{e.weight}</td>
          <td data-label="Limits">{limits(e) || "–"}</td>
          <td data-label="Challenge"><Status status={e.verification} /></td>
        </Row>
      ))}
    </Rows>
  );
}

/** Returns what people know an endpoint by. */
export function nameOf(e: Schemas["Endpoint"]): string {
  return e.url || `asyncflow listen (${e.id.slice(-6)})`;
}
