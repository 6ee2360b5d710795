import { answer, api } from "../api.ts";
import { count } from "../format.ts";
import { useLoad } from "../load.ts";
import { Problem } from "../parts/problem.tsx";

const pause = 20_000; // between two loads, in ms

const ofNodes = (n: number) => `${count(n)} ${n === 1 ? "node is" : "nodes are"}`;

/** The nodes that serve the tenant, counted, in one line. */
export function Nodes() {
  const nodes = useLoad((signal) => answer(api.GET("/v1/nodes", { signal })), [], pause);
  const n = nodes.data;
  return (
    <>
      <Problem error={nodes.error} />
      {n && (
        <p>
          <span class={n.alive ? "" : "bad"}>{ofNodes(n.alive)} alive</span>:
          {" "}{count(n.roles.api)} for requests, {count(n.roles.dispatcher)} for deliveries,
          {" "}{count(n.roles.governance)} for background jobs
          {n.versions.length > 0 && <>, version {n.versions.join(" and ")}</>}.
          {n.gone > 0 && <span class="bad"> {ofNodes(n.gone)} gone.</span>}
        </p>
      )}
    </>
  );
}
