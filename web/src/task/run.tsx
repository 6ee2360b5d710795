import type { Schemas } from "../api.ts";
import { duration } from "../format.ts";
import { Time } from "../parts/time.tsx";

/** The name of a worker, with a link to all tasks that it runs or ran. */
export function Worker({ name }: { name: string }) {
  const query = new URLSearchParams({ worker: name, children: "true" });
  return <a href={`/console/tasks?${query}`}><code>{name}</code></a>;
}

/** Where a running task runs, as facts. */
export function Run({ run }: { run: Schemas["TaskRun"] | undefined }) {
  if (!run) return null;
  return (
    <>
      <div>
        <dt>Runs since</dt>
        <dd>
          <Time at={run.since} />
          {run.wait_ms !== undefined && <>, due {duration(run.wait_ms)} before</>}
        </dd>
      </div>
      {run.worker && <div><dt>Worker</dt><dd><Worker name={run.worker} /></dd></div>}
      {run.endpoint && <div><dt>Endpoint</dt><dd>{run.endpoint}</dd></div>}
      {run.claimer && <div><dt>Claimed by</dt><dd><bdi>{run.claimer}</bdi></dd></div>}
      <div><dt>Node</dt><dd><code>{run.node}</code></dd></div>
      {run.last_heartbeat && (
        <div><dt>Last heartbeat</dt><dd><Time at={run.last_heartbeat} /></dd></div>
      )}
    </>
  );
}
