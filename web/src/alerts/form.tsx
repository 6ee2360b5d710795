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
    attempts: signal(""), claimers: signal(""), late: signal(""),
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
  };
  const run = async () => {
    const { url, backlog, failures, endpoint, attempts, claimers, late } = fields;
    const rules: Schemas["AlertRules"] = {};
    if (backlog.value) rules.backlog_age = backlog.value;
    if (failures.value) rules.failure_rate = Number(failures.value) / 100;
    if (endpoint.value) rules.endpoint_failure_rate = Number(endpoint.value) / 100;
    if (attempts.value) rules.failure_attempts = Number(attempts.value);
    if (claimers.value) rules.no_claimers = claimers.value;
    if (late.value) rules.dependency_late = late.value;
    await done(await answer(api.PUT("/v1/alerts",
      { params: { header: unchanged(opened.current) }, body: { url: url.value, rules } })));
    return "The alerts are set";
  };
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
    </>
  );
  return <Action label={alerts ? "Change" : "Set up"} scope="manage" ask={ask} begin={begin}
    run={run} />;
}

/** Returns a share of 1 in %, without the digits that floating point adds. */
function percentOf(share: number | undefined): string {
  return share === undefined ? "" : String(Number((share * 100).toPrecision(10)));
}
