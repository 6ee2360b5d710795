import { useRoute } from "preact-iso";
import { api, type Schemas, tagged } from "../api.ts";
import { count, latency, span } from "../format.ts";
import { useLoad } from "../load.ts";
import { Problem } from "../parts/problem.tsx";
import { Skeleton } from "../parts/skeleton.tsx";
import { Status } from "../parts/status.tsx";
import { For, Time } from "../parts/time.tsx";
import { Title } from "../parts/title.tsx";
import { HistoryCharts } from "../chart/history.tsx";
import { EndpointActions } from "./actions.tsx";
import { nameOf } from "./endpoints.tsx";
import { Health as State } from "./health.tsx";
import { EndpointHistory } from "./history.tsx";
import { states } from "./outage.ts";
import { Secrets } from "./secrets.tsx";

type Shown = { endpoint: Schemas["Endpoint"] };

/** All of one endpoint. */
export function Endpoint() {
  const id = useRoute().params.id ?? "";
  const endpoint = useLoad((signal) => tagged(api.GET("/v1/endpoints/{id}",
    { signal, params: { path: { id } } })), [id], 3000);
  const { value: e, etag } = endpoint.data ?? {};
  if (!e) {
    return (
      <>
        <Title text={`Endpoint ${id}`} doc="endpoints.md" />
        <Problem error={endpoint.error} retry={endpoint.reload} />
        <Skeleton of={endpoint} />
      </>
    );
  }
  return (
    <>
      <Title text={nameOf(e)} doc="endpoints.md#health"><State state={e.health.state} /></Title>
      <Problem error={endpoint.error} retry={endpoint.reload} />
      <EndpointActions endpoint={e} etag={etag} changed={endpoint.reload} />
      <Health endpoint={e} />
      <EndpointHistory endpoint={e} />
      <HistoryCharts type={e.type} stage={e.stage} />
      <Settings endpoint={e} />
      <Secrets endpoint={e} />
    </>
  );
}

function Health({ endpoint: { health: h, ...e } }: Shown) {
  const { word, why, then } = states[h.state];
  return (
    <section>
      <h2>Health</h2>
      <p class={`health ${h.state}`}>
        <strong>{word[0]?.toUpperCase()}{word.slice(1)}</strong><For since={h.since} />
        {why && `: ${why}`}{then}.
        {h.until && <> They are tried again <Time at={h.until} />.</>}
      </p>
      {h.reason && h.state !== "closed" && <p class="problem">{h.reason}</p>}
      {e.verification === "unverified" && (
        <p class="problem">
          It gets no deliveries until it has echoed a challenge. {e.verification_error}
        </p>
      )}
      <dl class="facts">
        <div>
          <dt>Failed in the last 5 minutes</dt>
          <dd>{count(h.failures)} of {count(h.attempts)} attempts</dd>
        </div>
        <div><dt>They took (p50 / p99)</dt><dd>{latency(h.latency)}</dd></div>
        <div><dt>Challenge</dt><dd><Status status={e.verification} /></dd></div>
        {e.verified_at && <div><dt>Last echoed</dt><dd><Time at={e.verified_at} /></dd></div>}
        {e.verification !== "unverified" && e.verification_error && (
          <div><dt>Failed its last challenge</dt><dd>{e.verification_error}</dd></div>
        )}
      </dl>
    </section>
  );
}

function Settings({ endpoint: e }: Shown) {
  const { max_tasks: most, max_wait: wait } = e.batch ?? {};
  return (
    <section>
      <h2>Settings</h2>
      <dl class="facts">
        <div>
          <dt>Type and stage</dt>
          <dd><a href={`/console/types/${e.type}`}>{e.type}</a> / {e.stage}</dd>
        </div>
        <div><dt>Weight</dt><dd>{e.weight}{e.weight === 0 && ": no new deliveries"}</dd></div>
        <div>
          <dt>Most in flight</dt>
          <dd>{e.max_in_flight ? count(e.max_in_flight) : "–"}</dd>
        </div>
        <div><dt>Rate</dt><dd>{e.rate ?? "–"}</dd></div>
        <div>
          <dt>Tasks in one request</dt>
          <dd>
            {most ? `up to ${count(most)}` : wait ? "several" : "1"}
            {wait && `, which wait ${span(wait)} for others`}
          </dd>
        </div>
        {e.auth && <div><dt>Authentication</dt><dd>{authText(e.auth)}</dd></div>}
        {e.headers && (
          <div>
            <dt>Headers</dt>
            <dd><code>{Object.keys(e.headers).join(", ")}</code></dd>
          </div>
        )}
        {e.tls && <div><dt>Certificates</dt><dd>{tlsText(e.tls)}</dd></div>}
        <div><dt>Id</dt><dd><code>{e.id}</code></dd></div>
        <div><dt>Created</dt><dd><Time at={e.created_at} /></dd></div>
        <div><dt>Changed</dt><dd><Time at={e.updated_at} /></dd></div>
      </dl>
    </section>
  );
}

function authText(a: Schemas["EndpointAuth"]): string {
  if (a.kind === "basic") return `basic, as ${a.username}`;
  return a.kind === "oauth2" ? `oauth2, ${a.client_id} at ${a.token_url}` : a.kind;
}

function tlsText(t: Schemas["EndpointTLS"]): string {
  const own = t.ca ? "its own authorities" : "";
  const client = t.certificate ? "a client certificate" : "";
  return [own, client].filter(Boolean).join(", ");
}
