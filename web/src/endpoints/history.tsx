import { answer, api, type Schemas } from "../api.ts";
import { count } from "../format.ts";
import { useLoad } from "../load.ts";
import { Hour } from "../parts/hour.tsx";
import { Problem } from "../parts/problem.tsx";
import { Table } from "../parts/rows.tsx";
import { Time } from "../parts/time.tsx";
import { Health } from "./health.tsx";

type Codes = NonNullable<Schemas["FailureCodes"]>;

/** The last hour of an endpoint, and the states that its circuit breaker was in. */
export function EndpointHistory({ endpoint: e }: { endpoint: Schemas["Endpoint"] }) {
  const load = useLoad((signal) => answer(api.GET("/v1/endpoints/{id}/history",
    { signal, params: { path: { id: e.id } } })), [e.id], 20_000);
  const h = load.data;
  return (
    <section>
      <h2>Last hour</h2>
      <Problem error={load.error} retry={load.reload} />
      {h?.in_flight !== undefined && <InFlight tasks={h.in_flight} limit={e.max_in_flight} />}
      {h?.minutes.length === 0 && <p class="quiet">There were no attempts.</p>}
      {!!h?.minutes.length && <Hour minutes={h.minutes} />}
      {h && <Failures minutes={h.minutes} />}
      {!!h?.states.length && <States states={h.states} />}
    </section>
  );
}

function InFlight({ tasks, limit }: { tasks: number; limit: number | undefined }) {
  return (
    <p>
      In flight now: {count(tasks)}
      {!!limit && (
        <>
          {" "}of at most {count(limit)}{" "}
          <meter max={limit} value={tasks} aria-label="in flight" />
        </>
      )}
    </p>
  );
}

function Failures({ minutes }: { minutes: Schemas["EndpointMinute"][] }) {
  const sums: Codes = {};
  for (const { codes = {} } of minutes) {
    for (const [code, n] of Object.entries(codes)) sums[code] = (sums[code] ?? 0) + n;
  }
  const sorted = Object.entries(sums).sort(([, a], [, b]) => b - a);
  if (sorted.length === 0) return null;
  return (
    <>
      <h3>Why attempts failed</h3>
      <Table label="Failures by code" columns={["Status or reason", { n: "Attempts" }]}>
        {sorted.map(([code, n]) => (
          <tr key={code}><td>{code}</td><td class="n">{count(n)}</td></tr>
        ))}
      </Table>
    </>
  );
}

function States({ states }: { states: Schemas["EndpointState"][] }) {
  return (
    <>
      <h3>States of the circuit breaker</h3>
      <Table label="States of the circuit breaker" columns={["State", "Since", "Until", "Reason"]}>
        {states.map((s) => (
          <tr key={s.since + s.state}>
            <td><Health state={s.state} /></td>
            <td><Time at={s.since} /></td>
            <td><Time at={s.until} /></td>
            <td>{s.reason}</td>
          </tr>
        ))}
      </Table>
    </>
  );
}
