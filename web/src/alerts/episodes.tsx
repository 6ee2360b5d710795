import type { Schemas } from "../api.ts";
import { Table } from "../parts/rows.tsx";
import { Status } from "../parts/status.tsx";
import { For, Time } from "../parts/time.tsx";
import { waitText } from "../task/why.tsx";
import { alertText, valueText } from "./rules.ts";
import { Subject } from "./subject.tsx";

type Episode = Schemas["AlertEpisode"];

/** The alerts that go on, and those that ended in the last 30 days. */
export function Episodes({ episodes }: { episodes: Episode[] }) {
  const firing = episodes.filter((e) => e.state === "firing");
  const past = episodes.filter((e) => e.state !== "firing");
  return (
    <>
      <section>
        <h2>Now</h2>
        {firing.length === 0
          ? <p>Nothing is amiss.</p>
          : <EpisodeTable label="Alerts that go on" episodes={firing} />}
      </section>
      <section>
        <h2>Ended in the last 30 days</h2>
        {past.length === 0
          ? <p>None has ended.</p>
          : <EpisodeTable label="Alerts that have ended" episodes={past} />}
      </section>
    </>
  );
}

/** Some alerts as a table. */
export function EpisodeTable({ label, episodes }: { label: string; episodes: Episode[] }) {
  return (
    <Table cards label={label} columns={["Alert", "About", "State", { n: "First value" },
      { n: "Limit" }, "Began", "Ended", "Sent"]}>
      {episodes.map((e) => (
        <tr key={e.id}>
          <th scope="row">
            {alertText(e.alert)}
            {e.waits_for && <div class="quiet">{waitText(e.waits_for)}</div>}
          </th>
          <td data-label="About">
            <div><Subject episode={e} /><Keys episode={e} /><About task={e.task} /></div>
          </td>
          <td data-label="State"><Status status={e.state} /></td>
          <td class="n" data-label="First value">{valueText(e.alert, e.value)}</td>
          <td class="n" data-label="Limit">{valueText(e.alert, e.limit)}</td>
          <td data-label="Began"><Time at={e.since} /></td>
          <td data-label="Ended"><Time at={e.resolved_at} /></td>
          <td data-label="Sent">
            <div>
              {e.tasks?.map((id) => (
                <div key={id}><a href={`/console/tasks/${encodeURIComponent(id)}`}>{id}</a></div>
              ))}
            </div>
          </td>
        </tr>
      ))}
    </Table>
  );
}

/** The flow keys that stood still when the alert began, and the tasks that they wait for. */
function Keys({ episode: e }: { episode: Episode }) {
  const keys = e.keys ?? [];
  const more = (e.blocked_keys ?? 0) - keys.length;
  return (
    <>
      {keys.map((k) => (
        <div key={k.key} class="quiet">
          {k.key}: <a href={`/console/tasks/${encodeURIComponent(k.task)}`}>{k.task}</a>
          {" "}{k.waits_for ? waitText(k.waits_for) : k.status},<For since={k.since} />
          <Labels of={{ ...k, key: k.task_key }} />
        </div>
      ))}
      {more > 0 && <div class="quiet">and {more} more</div>}
    </>
  );
}

/** The task that stands for the tasks of an alert. */
function About({ task }: { task?: Schemas["AlertTask"] }) {
  if (!task) {
    return null;
  }
  return (
    <div class="quiet">
      <a href={`/console/tasks/${encodeURIComponent(task.id)}`}>{task.id}</a>
      <Labels of={task} />
    </div>
  );
}

type Labelled = Pick<Schemas["AlertTask"], "key" | "user" | "tags" | "metadata">;

/** The key and the labels of a task, in short. */
function Labels({ of }: { of: Labelled }) {
  const all = [
    of.key && `key ${of.key}`,
    of.user && `user ${of.user}`,
    ...(of.tags ?? []),
    ...Object.entries(of.metadata ?? {}).map(([name, value]) => `${name}=${value}`),
  ].filter(Boolean);
  return <>{all.map((text) => `, ${text}`)}</>;
}
