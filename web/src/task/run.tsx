import type { Schemas } from "../api.ts";
import { duration } from "../format.ts";
import { For, Time } from "../parts/time.tsx";

/** The name of a worker, with a link to all tasks that it runs or ran. */
export function Worker({ name }: { name: string }) {
  const query = new URLSearchParams({ worker: name, children: "true" });
  return <a href={`/console/tasks?${query}`}><code>{name}</code></a>;
}

/** Says where a running task runs now. */
export function RunsNow({ run }: { run: Schemas["TaskRun"] }) {
  const { worker, endpoint, endpoint_id: id, claimer } = run;
  return (
    <p>
      It has run<For since={run.since} />
      {run.wait_ms !== undefined && <>, after a wait of {duration(run.wait_ms)}</>}
      {worker && <>, at the worker <Worker name={worker} /></>}
      {endpoint && <>, at {id ? <a href={`/console/endpoints/${id}`}>{endpoint}</a>
        : <bdi>{endpoint}</bdi>}</>}
      {claimer && <>, claimed by <bdi>{claimer}</bdi></>}, by the node <code>{run.node}</code>.
      {run.last_heartbeat && <> Its last heartbeat was <Time at={run.last_heartbeat} />.</>}
    </p>
  );
}
