import { useSignal } from "@preact/signals";
import { answer, api, CallError, type Schemas, tagged } from "../api.ts";
import { useLoad } from "../load.ts";
import { Action } from "../parts/action.tsx";
import { Empty } from "../parts/empty.tsx";
import { Problem } from "../parts/problem.tsx";
import { NewSecret } from "../parts/secret.tsx";
import { Skeleton } from "../parts/skeleton.tsx";
import { Time } from "../parts/time.tsx";
import { Title } from "../parts/title.tsx";
import { Episodes } from "./episodes.tsx";
import { SetAlerts } from "./form.tsx";
import { ruleTexts } from "./rules.ts";

/** Where alerts go, their rules, and what they have announced. */
export function Alerts() {
  // There is no timer: each of these reads has an entry in the audit.
  const alerts = useLoad(async (signal) => {
    try {
      return { set: await tagged(api.GET("/v1/alerts", { signal })) };
    } catch (e) {
      if (e instanceof CallError && e.status === 404) return { set: undefined };
      throw e;
    }
  }, []);
  const secret = useSignal("");
  const done = (after: Schemas["Alerts"]) => {
    secret.value = after.secret ?? "";
    return alerts.reload();
  };
  const read = alerts.data?.set;
  const set = read?.value;
  return (
    <>
      <Title text="Alerts" doc="alerts.md" />
      <Problem error={alerts.error} retry={alerts.reload} />
      <Skeleton of={alerts} />
      <p class="buttons">
        <button type="button" disabled={alerts.loading} onClick={alerts.reload}>Refresh</button>
        {alerts.data && <SetAlerts alerts={read} done={done} />}
        {read && <TurnOff etag={read.etag} done={alerts.reload} />}
      </p>
      {secret.value && (
        <NewSecret secret={secret.value} kind="secret" close={() => (secret.value = "")} />
      )}
      {alerts.data && !set && (
        <Empty title="Alerts are off">
          Say where they go, and when: with the button above, or with{" "}
          <code>asyncflow alerts set</code>.
        </Empty>
      )}
      {set && (
        <>
          <Rules alerts={set} />
          <Episodes episodes={set.episodes} />
        </>
      )}
    </>
  );
}

function TurnOff({ etag, done }: { etag: string | undefined; done: () => Promise<void> }) {
  const run = async () => {
    await answer(api.DELETE("/v1/alerts", { params: { header: { "If-Match": etag } } }));
    await done();
    return "Alerts are off";
  };
  const ask = (
    <p>
      Their URL, its secret, the rules and the list of alerts are deleted. This can't be undone.
      The tasks of <code>asyncflow-alerts</code> stay.
    </p>
  );
  return <Action label="Turn off" scope="manage" danger ask={ask} run={run} />;
}

function Rules({ alerts: a }: { alerts: Schemas["Alerts"] }) {
  const rules = ruleTexts(a.rules);
  return (
    <section>
      <h2>Rules</h2>
      <p class="long">
        They go to {a.endpoint
          ? <a href={`/console/endpoints/${a.endpoint}`}>{a.url}</a>
          : <code>{a.url}</code>}, as tasks of{" "}
        <a href="/console/tasks?type=asyncflow-alerts">asyncflow-alerts</a>.
        {" "}Changed <Time at={a.updated_at} />.
      </p>
      {a.verification_error && <p class="problem">{a.verification_error}</p>}
      {rules.length === 0
        ? <p>There are no rules of your own.</p>
        : <ul>{rules.map((text) => <li key={text}>{text}</li>)}</ul>}
    </section>
  );
}
