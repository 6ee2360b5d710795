import { EpisodeTable } from "../alerts/episodes.tsx";
import { answer, api, type Schemas } from "../api.ts";
import { count } from "../format.ts";
import { useLoad } from "../load.ts";
import { Problem } from "../parts/problem.tsx";
import { may } from "../session.ts";

const pause = 20_000; // between two looks, in ms

/** The nodes that serve the tenant, counted, and the alerts that are firing. */
export function Now() {
  const nodes = useLoad((signal) => answer(api.GET("/v1/nodes", { signal })), [], pause);
  const alerts = useLoad((signal) => answer(api.GET("/v1/alerts/firing", { signal })), [], pause);
  return (
    <>
      <Problem error={nodes.error ?? alerts.error} />
      <p>
        {nodes.data && <Nodes nodes={nodes.data} />}
        {" "}{alerts.data && <AlertState alerts={alerts.data} />}
      </p>
      {!!alerts.data?.data.length && (
        <section>
          <h2>Alerts now</h2>
          <EpisodeTable label="Alerts that are firing" episodes={alerts.data.data} />
        </section>
      )}
    </>
  );
}

const ofNodes = (n: number) => `${count(n)} ${n === 1 ? "node is" : "nodes are"}`;

function Nodes({ nodes: n }: { nodes: Schemas["NodeCounts"] }) {
  const { api: takes, dispatcher, governance } = n.roles;
  return (
    <>
      <span class={n.alive ? "" : "bad"}>{ofNodes(n.alive)} alive</span>:
      {" "}{count(takes)} for requests, {count(dispatcher)} for deliveries,
      {" "}{count(governance)} for background jobs
      {n.versions.length > 0 && <>, version {n.versions.join(" and ")}</>}.
      {n.gone > 0 && <span class="bad"> {ofNodes(n.gone)} gone.</span>}
    </>
  );
}

function AlertState({ alerts }: { alerts: Schemas["FiringAlerts"] }) {
  if (alerts.enabled) return alerts.data.length === 0 ? <>No alert is firing.</> : null;
  return may("manage") ? <a href="/console/alerts">Alerts are off.</a> : <>Alerts are off.</>;
}
