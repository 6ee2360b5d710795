import type { ComponentChildren } from "preact";
import { answer, api, type Schemas } from "../api.ts";
import { count, duration } from "../format.ts";
import { useLoad } from "../load.ts";
import { Problem } from "../parts/problem.tsx";
import { Table } from "../parts/rows.tsx";
import { Skeleton } from "../parts/skeleton.tsx";
import { Status } from "../parts/status.tsx";
import { Time } from "../parts/time.tsx";
import { Title } from "../parts/title.tsx";
import { Troubled, useTroubled } from "../tenants/trouble.tsx";

/** The nodes and the background jobs. */
export function Governance() {
  const show = ({ nodes, jobs }: Schemas["Governance"]) => (
    <>
      <Nodes nodes={nodes} />
      <Jobs title="Background jobs" jobs={jobs} />
    </>
  );
  return <Installation title="Governance" doc="architecture.md#governance" show={show} />;
}

/** What an operator sees first: tenants in trouble, the nodes, and background jobs that fail. */
export function OperatorOverview() {
  const troubled = useTroubled();
  const show = ({ nodes, jobs }: Schemas["Governance"]) => {
    const failing = jobs.filter((j) => j.failures > 0);
    return (
      <>
        <Nodes nodes={nodes} />
        {failing.length > 0
          ? <Jobs title="Background jobs that fail" jobs={failing} />
          : <p>No <a href="/console/governance">background job</a> fails.</p>}
      </>
    );
  };
  return (
    <Installation title="Overview" doc="console.md#for-operators" show={show}
      first={<Troubled load={troubled} />} refresh={troubled.reload} />
  );
}

interface InstallationProps {
  title: string;
  doc: string;
  /** What stands above the rest, and what reads it again. */
  first?: ComponentChildren;
  refresh?: () => Promise<void>;
  show: (all: Schemas["Governance"]) => ComponentChildren;
}

function Installation({ title, doc, first, refresh, show }: InstallationProps) {
  // There is no timer: each read has an entry in the operators' audit.
  const all = useLoad(async (signal) => ({
    ...await answer(api.GET("/v1/governance", { signal })), at: new Date().toISOString(),
  }), []);
  return (
    <>
      <Title text={title} doc={doc} />
      <p class="buttons">
        <button type="button" disabled={all.loading}
          onClick={() => { void all.reload(); void refresh?.(); }}>Refresh</button>
        {all.data && <span class="quiet">As it was <Time at={all.data.at} /></span>}
      </p>
      {first}
      <Problem error={all.error} retry={all.reload} />
      <Skeleton of={all} />
      {all.data && show(all.data)}
    </>
  );
}

function Nodes({ nodes }: { nodes: Schemas["Node"][] }) {
  return (
    <section>
      <h2>Nodes</h2>
      <Table label="Nodes" columns={["Node", "State", "Roles", "Version", "Started", "Seen"]}>
        {nodes.map((n) => (
          <tr key={n.id}>
            <th scope="row">{n.id}</th>
            <td><Status status={n.state} /></td>
            <td>{n.roles.join(", ")}</td>
            <td>{n.version}</td>
            <td><Time at={n.started_at} /></td>
            <td><Time at={n.seen_at} /></td>
          </tr>
        ))}
      </Table>
    </section>
  );
}

function Jobs({ title, jobs }: { title: string; jobs: Schemas["Job"][] }) {
  return (
    <section>
      <h2>{title}</h2>
      <Table label={title} columns={["Job", "Last run", "Began", "On", { n: "Took" },
        { n: "Rows" }, "Next run", "Timetable"]}>
        {jobs.map((j) => (
          <tr key={j.name}>
            <th scope="row">{j.name}</th>
            <td>
              <Status status={j.outcome} />
              {j.failures > 0 && (
                <div class="bad">
                  {count(j.failures)} failed{j.succeeded_at && <>, the last success{" "}
                    <Time at={j.succeeded_at} /></>}
                </div>
              )}
              {j.error && <div class="long">{j.error}</div>}
            </td>
            <td><Time at={j.started_at} /></td>
            <td>{j.node}</td>
            <td class="n">{j.duration_ms !== undefined && duration(j.duration_ms)}</td>
            <td class="n">{count(j.rows)}</td>
            <td><Time at={j.next_at} /></td>
            <td><code>{j.schedule}</code></td>
          </tr>
        ))}
      </Table>
    </section>
  );
}
