import { signal } from "@preact/signals";
import { useMemo, useRef } from "preact/hooks";
import { answer, api, type Schemas, type Tagged, unchanged } from "../api.ts";
import { Action } from "../parts/action.tsx";
import { Field } from "../parts/field.tsx";

type Alerts = Schemas["Alerts"];

interface Props {
  alerts: Tagged<Alerts> | undefined;
  done: (after: Alerts) => Promise<void>;
}

/** The form for where alerts go, and for their rules. A rule that is left empty is off. */
export function SetAlerts({ alerts, done }: Props) {
  const fields = useMemo(() => ({
    url: signal(""), backlog: signal(""), failures: signal(""), endpoint: signal(""),
    attempts: signal(""), claimers: signal(""), late: signal(""), failed: signal(""),
    total: signal(""), failedWithin: signal(""), key: signal(""), wait: signal(""),
    waitWithin: signal(""),
    expire: signal(""),
    expireWithin: signal(""),
  }), []);
  const opened = useRef(alerts);
  const begin = () => {
    opened.current = alerts;
    const r = alerts?.value.rules ?? { backlog_age: "5m", failure_rate: 0.5 };
    fields.url.value = alerts?.value.url ?? "";
    fields.backlog.value = r.backlog_age ?? "";
    fields.failures.value = percentOf(r.failure_rate);
    fields.endpoint.value = percentOf(r.endpoint_failure_rate);
    fields.attempts.value = String(r.failure_attempts ?? "");
    fields.claimers.value = r.no_claimers ?? "";
    fields.late.value = r.dependency_late ?? "";
    fields.failed.value = String(r.failed_for_good ?? "");
    fields.total.value = String(r.failed_in_total ?? "");
    fields.failedWithin.value = r.failed_within ?? "";
    fields.key.value = r.blocked_key ?? "";
    fields.wait.value = r.long_wait ?? "";
    fields.waitWithin.value = r.long_wait_within ?? "";
    fields.expire.value = String(r.will_expire ?? "");
    fields.expireWithin.value = r.will_expire_within ?? "";
  };
  const run = async () => {
    const { url, backlog, failures, endpoint, attempts, claimers, late } = fields;
    const { failed, total, failedWithin, key, wait, waitWithin } = fields;
    const { expire, expireWithin } = fields;
    const rules: Schemas["AlertRules"] = {};
    if (backlog.value) rules.backlog_age = backlog.value;
    if (failures.value) rules.failure_rate = Number(failures.value) / 100;
    if (endpoint.value) rules.endpoint_failure_rate = Number(endpoint.value) / 100;
    if (attempts.value) rules.failure_attempts = Number(attempts.value);
    if (claimers.value) rules.no_claimers = claimers.value;
    if (late.value) rules.dependency_late = late.value;
    if (failed.value) rules.failed_for_good = Number(failed.value);
    if (total.value) rules.failed_in_total = Number(total.value);
    if (failedWithin.value) rules.failed_within = failedWithin.value;
    if (key.value) rules.blocked_key = key.value;
    if (wait.value) rules.long_wait = wait.value;
    if (waitWithin.value) rules.long_wait_within = waitWithin.value;
    if (expire.value) rules.will_expire = Number(expire.value);
    if (expireWithin.value) rules.will_expire_within = expireWithin.value;
    await done(await answer(api.PUT("/v1/alerts",
      { params: { header: unchanged(opened.current) }, body: { url: url.value, rules } })));
    return "The alerts are set";
  };
  const number = { type: "number", min: "1" } as const;
  const share = { type: "number", min: "0", max: "100", step: "any" } as const;
  const ask = (
    <>
      <Field label="URL that alerts are sent to" type="url" required value={fields.url} />
      <p class="quiet">A rule whose field is empty is off.</p>
      <Field label="A task has been due for, such as 5m" value={fields.backlog} />
      <Field label="Share of a type's attempts that fail, in %" {...share}
        value={fields.failures} />
      <Field label="Share of the attempts at an endpoint that fail, in %" {...share}
        value={fields.endpoint} />
      <Field label="For both: the fewest attempts in 5 minutes; empty: 20" type="number" min="1"
        value={fields.attempts} />
      <Field label="Nobody has asked for a due task for, such as 10m" value={fields.claimers} />
      <Field label="A task has waited for its dependencies for, such as 24h" value={fields.late} />
      <Field label="Tasks of a type that failed for good" {...number} value={fields.failed} />
      <Field label="Tasks of all types together that failed for good" {...number}
        value={fields.total} />
      <Field label="For both: within, such as 30m; empty: 1h" value={fields.failedWithin} />
      <Field label="A flow key has stood still for, such as 15m" value={fields.key} />
      <Field label="1 % of the started tasks had been due for, such as 30s" value={fields.wait} />
      <Field label="Started within, such as 10m; empty: 5m" value={fields.waitWithin} />
      <Field label="Tasks of a type that expire and are not running" {...number}
        value={fields.expire} />
      <Field label="Expire within, such as 10m; empty: 5m" value={fields.expireWithin} />
    </>
  );
  return <Action label={alerts ? "Change" : "Set up"} scope="manage" ask={ask} begin={begin}
    run={run} />;
}

/** Returns a share of 1 in %, without the digits that floating point adds. */
function percentOf(share: number | undefined): string {
  return share === undefined ? "" : String(Number((share * 100).toPrecision(10)));
}
