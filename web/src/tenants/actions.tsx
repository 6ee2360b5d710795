import { type Signal, signal, useSignal } from "@preact/signals";
import { useMemo, useRef } from "preact/hooks";
import { answer, api, type Schemas } from "../api.ts";
import { words } from "../format.ts";
import { Action } from "../parts/action.tsx";
import { Field, TypedName } from "../parts/field.tsx";

interface Props {
  tenant: Schemas["Tenant"];
  etag: string | undefined;
  changed: () => Promise<void>;
}

/** The buttons for what can be done with a tenant in its state. */
export function TenantActions({ tenant: t, etag, changed }: Props) {
  const path = { params: { path: { slug: t.slug } } };
  const resume = async () => {
    await answer(api.PATCH("/v1/tenants/{slug}", {
      params: { ...path.params, header: { "If-Match": etag } }, body: { suspended: false },
    }));
    await changed();
    return `${t.slug} is resumed`;
  };
  const restore = async () => {
    await answer(api.POST("/v1/tenants/{slug}/restore", path));
    await changed();
    return `${t.slug} is restored`;
  };
  if (t.state === "dropping") return null;
  if (t.state === "deleted") {
    return (
      <>
        <Action label="Restore" scope="operator" run={restore} />
        <Delete tenant={t} etag={etag} changed={changed} />
      </>
    );
  }
  return (
    <>
      <ChangeQuotas tenant={t} etag={etag} changed={changed} />
      {t.state === "suspended"
        ? <Action label="Resume" scope="operator" run={resume} />
        : <Suspend tenant={t} etag={etag} changed={changed} />}
      <Delete tenant={t} etag={etag} changed={changed} />
    </>
  );
}

function Suspend({ tenant, etag, changed }: Props) {
  const reason = useSignal("");
  const run = async () => {
    await answer(api.PATCH("/v1/tenants/{slug}", {
      params: { path: { slug: tenant.slug }, header: { "If-Match": etag } },
      body: { suspended: true, ...(reason.value ? { reason: reason.value } : {}) },
    }));
    await changed();
    return `${tenant.slug} is suspended`;
  };
  const ask = (
    <>
      <p>Its calls are refused, its tasks wait, and its schedules don't run.</p>
      <Field label="Reason, which its callers see" value={reason} maxLength={4096} />
    </>
  );
  return <Action label="Suspend" scope="operator" danger ask={ask} run={run} />;
}

const quotaNames = ["task_types", "endpoints", "schedules", "configuration_bytes",
  "pending_tasks", "submits_per_second", "context_bytes", "deliveries_per_second", "concurrency",
  "children"] as const satisfies Schemas["QuotaName"][];

/** Changes the tenant's own quotas. Only those that were edited are sent. */
function ChangeQuotas({ tenant, etag, changed }: Props) {
  const fields = useMemo(() => quotaNames.map((name) => ({ name, value: signal("") })), []);
  const text = (name: Schemas["QuotaName"]) => String(tenant.quotas[name] || "");
  const opened = useRef(etag);
  const begin = () => {
    opened.current = etag;
    fields.forEach((f) => (f.value.value = text(f.name)));
  };
  const run = async () => {
    const quotas: Schemas["QuotaChanges"] = {};
    for (const { name, value } of fields) {
      if (value.value !== text(name)) quotas[name] = Number(value.value);
    }
    await answer(api.PATCH("/v1/tenants/{slug}", {
      params: { path: { slug: tenant.slug }, header: { "If-Match": opened.current } },
      body: { quotas },
    }));
    await changed();
    return "The quotas are changed";
  };
  const ask = (
    <>
      <p>Empty: the operator's default. -1: no limit.</p>
      <div class="columns">
        {fields.map((f) => <QuotaField key={f.name} name={f.name} value={f.value} />)}
      </div>
    </>
  );
  return <Action label="Change quotas" scope="operator" ask={ask} begin={begin} run={run} />;
}

function QuotaField({ name, value }: { name: Schemas["QuotaName"]; value: Signal<string> }) {
  const fraction = name.endsWith("_per_second");
  return (
    <Field label={words(name)} type="number" min="-1" step={fraction ? "any" : "1"}
      value={value} />
  );
}

function Delete({ tenant, etag, changed }: Props) {
  const grace = useSignal("168h");
  const run = async () => {
    await answer(api.DELETE("/v1/tenants/{slug}", {
      params: {
        path: { slug: tenant.slug }, header: { "If-Match": etag }, query: { grace: grace.value },
      },
    }));
    await changed();
    return `${tenant.slug} is deleted`;
  };
  const ask = (
    <>
      <p>
        It is suspended at once. When the grace period is over, all that it has is dropped; until
        then it can be restored.
      </p>
      <Field label="Grace period, such as 168h; 0s: none" required value={grace} />
      <TypedName name={tenant.slug} />
    </>
  );
  const label = tenant.state === "deleted" ? "Change the grace period" : "Delete";
  return <Action label={label} scope="operator" danger ask={ask} run={run} />;
}
