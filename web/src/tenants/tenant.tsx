import { useRoute } from "preact-iso";
import { api, type Schemas, tagged } from "../api.ts";
import { amount, words } from "../format.ts";
import { useLoad } from "../load.ts";
import { Problem } from "../parts/problem.tsx";
import { Table } from "../parts/rows.tsx";
import { Skeleton } from "../parts/skeleton.tsx";
import { Status } from "../parts/status.tsx";
import { Time } from "../parts/time.tsx";
import { Title } from "../parts/title.tsx";
import { TenantActions } from "./actions.tsx";

/** All of one tenant. */
export function Tenant() {
  const slug = useRoute().params.slug ?? "";
  const tenant = useLoad((signal) => tagged(api.GET("/v1/tenants/{slug}",
    { signal, params: { path: { slug } } })), [slug]);
  const { value: t, etag } = tenant.data ?? {};
  return (
    <>
      <Title text={slug} doc="tenants.md#quotas">{t && <Status status={t.state} />}</Title>
      <Problem error={tenant.error} retry={tenant.reload} />
      <Skeleton of={tenant} />
      {t && (
        <>
          <p class="buttons">
            <button type="button" disabled={tenant.loading} onClick={tenant.reload}>Refresh</button>
            <TenantActions tenant={t} etag={etag} changed={tenant.reload} />
          </p>
          <State tenant={t} />
          <Usage usage={t.usage ?? []} />
        </>
      )}
    </>
  );
}

function State({ tenant: t }: { tenant: Schemas["Tenant"] }) {
  return (
    <dl class="facts">
      <div><dt>Created</dt><dd><Time at={t.created_at} /></dd></div>
      {t.suspended_at && <div><dt>Suspended</dt><dd><Time at={t.suspended_at} /></dd></div>}
      {t.reason && <div><dt>Reason</dt><dd>{t.reason}</dd></div>}
      {t.deleted_at && <div><dt>Deleted</dt><dd><Time at={t.deleted_at} /></dd></div>}
      {t.drop_at && <div><dt>Can be restored until</dt><dd><Time at={t.drop_at} /></dd></div>}
    </dl>
  );
}

function Usage({ usage }: { usage: Schemas["QuotaUsage"][] }) {
  if (usage.length === 0) return null;
  return (
    <section>
      <h2>Quotas</h2>
      <Table label="Quotas and their usage"
        columns={["Quota", { n: "Used" }, { n: "Limit" }, "Usage", "Set by"]}>
        {usage.map(({ name, limit, used, own }) => (
          <tr key={name}>
            <th scope="row">{words(name)}</th>
            <td class="n">{used === undefined ? "" : amount(name, used)}</td>
            <td class="n">{limit === undefined ? "no limit" : amount(name, limit)}</td>
            <td>
              {limit !== undefined && used !== undefined && (
                <meter max={limit} value={used} high={limit * 0.9}
                  aria-label={`Usage of ${words(name)}`} />
              )}
            </td>
            <td>{own ? "this tenant" : "default"}</td>
          </tr>
        ))}
      </Table>
    </section>
  );
}
