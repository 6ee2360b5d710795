import { useSignal } from "@preact/signals";
import { useLocation } from "preact-iso";
import { answer, api, type Schemas } from "../api.ts";
import { amount, words } from "../format.ts";
import { useLoad } from "../load.ts";
import { Action } from "../parts/action.tsx";
import { Empty } from "../parts/empty.tsx";
import { Field } from "../parts/field.tsx";
import { Pager, useQuery } from "../parts/pager.tsx";
import { Problem } from "../parts/problem.tsx";
import { Row, Rows } from "../parts/rows.tsx";
import { Skeleton } from "../parts/skeleton.tsx";
import { Status } from "../parts/status.tsx";
import { Time } from "../parts/time.tsx";
import { Title } from "../parts/title.tsx";

/** The tenants, by name. */
export function Tenants() {
  const [{ cursor }] = useQuery();
  // There is no timer: each read has an entry in the operators' audit.
  const list = useLoad((signal) => answer(api.GET("/v1/tenants",
    { signal, params: { query: { cursor } } })), [cursor]);
  const { data, next_cursor: next } = list.data ?? {};
  return (
    <>
      <Title text="Tenants" doc="tenants.md" />
      <p class="buttons">
        <button type="button" disabled={list.loading} onClick={list.reload}>Refresh</button>
        <Create />
      </p>
      <Problem error={list.error} retry={list.reload} />
      <Skeleton of={list} />
      {data?.length === 0 && (
        <Empty title="There are no tenants yet">Create one with the button above.</Empty>
      )}
      {!!data?.length && (
        <Rows cards label="Tenants"
          columns={["Tenant", "State", "Reason", "Own quotas", "Created"]}>
          {data.map((t) => (
            <Row key={t.slug} href={`/console/tenants/${t.slug}`} name={t.slug}>
              <td data-label="State">
                <Status status={t.state} />
                {t.drop_at && <span class="quiet"> dropped <Time at={t.drop_at} /></span>}
              </td>
              <td class="cut" data-label="Reason">{t.reason || "–"}</td>
              <td data-label="Own quotas">{quotaText(t.quotas) || "–"}</td>
              <td data-label="Created"><Time at={t.created_at} /></td>
            </Row>
          ))}
        </Rows>
      )}
      <Pager next={next} />
    </>
  );
}

/** Returns a tenant's own quotas in a line. */
function quotaText(quotas: Schemas["Quotas"]): string {
  return Object.entries(quotas).filter(([, n]) => n)
    .map(([name, n]) => `${words(name)} ${n < 0 ? "without limit" : amount(name, n)}`).join(", ");
}

function Create() {
  const { route } = useLocation();
  const slug = useSignal("");
  const run = async () => {
    await answer(api.POST("/v1/tenants", { body: { slug: slug.value } }));
    route(`/console/tenants/${slug.value}`);
    return `${slug.value} is created`;
  };
  const ask = (
    <>
      <Field label="Name: a lower-case letter, then those, digits, - and _" required
        pattern="[a-z][a-z0-9_\-]*" maxLength={40} value={slug} />
      <p>
        Its quotas can be set afterwards. Its first token comes from{" "}
        <code>asyncflow token create</code>.
      </p>
    </>
  );
  return <Action label="New tenant" scope="operator" ask={ask} run={run} />;
}
