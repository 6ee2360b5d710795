import { answer, api, type Schemas } from "../api.ts";
import { count } from "../format.ts";
import { type Loaded, useLoad } from "../load.ts";
import { Problem } from "../parts/problem.tsx";
import { Row, Rows } from "../parts/rows.tsx";
import { Skeleton } from "../parts/skeleton.tsx";
import { Time } from "../parts/time.tsx";

const most = 10; // tenants

/** Loads the tenants in trouble, once: each read has an entry in the operators' audit. */
export function useTroubled(): Loaded<Schemas["TenantList"]> {
  return useLoad((signal) => answer(api.GET("/v1/tenants",
    { signal, params: { query: { order: "trouble", limit: most } } })), []);
}

/** The tenants in trouble, the worst first. */
export function Troubled({ load }: { load: Loaded<Schemas["TenantList"]> }) {
  const all = load.data?.data;
  return (
    <section>
      <h2>Tenants in trouble</h2>
      <Problem error={load.error} retry={load.reload} />
      <Skeleton of={load} />
      {all?.length === 0 && (
        <p>No <a href="/console/tenants">tenant</a> has alerts, due tasks, or tasks that failed in
          the last hour.</p>
      )}
      {!!all?.length && (
        <Rows cards label="Tenants in trouble" columns={["Tenant", { n: "Alerts" }, { n: "Due" },
          "Oldest due", { n: "Failed, last hour" }]}>
          {all.map((t) => <TroubledRow key={t.slug} tenant={t} />)}
        </Rows>
      )}
      {!!load.data?.unread && (
        <p class="bad">
          The history of {count(load.data.unread)} tenants can't be recorded: what is listed of them
          is what was last known. See <a href="/console/governance">the job history</a>.
        </p>
      )}
      {all?.length === most && (
        <p>The worst {most} are shown. <a href="/console/tenants">All tenants</a></p>
      )}
    </section>
  );
}

function TroubledRow({ tenant: t }: { tenant: Schemas["Tenant"] }) {
  const { alerts = 0, due = 0, oldest_due: oldest, failed_last_hour: failed = 0 } = t.health ?? {};
  return (
    <Row href={`/console/tenants/${t.slug}`} name={t.slug}>
      <td class={alerts ? "n bad" : "n"} data-label="Alerts">{count(alerts)}</td>
      <td class="n" data-label="Due">{count(due)}</td>
      <td data-label="Oldest due"><Time at={oldest} /></td>
      <td class={failed ? "n bad" : "n"} data-label="Failed, last hour">{count(failed)}</td>
    </Row>
  );
}
