import { useLocation, useRoute } from "preact-iso";
import { answer, api, type Schemas, tagged } from "../api.ts";
import { count } from "../format.ts";
import { members } from "../json.ts";
import { useLoad } from "../load.ts";
import { Action } from "../parts/action.tsx";
import { TypedName } from "../parts/field.tsx";
import { Json } from "../parts/json.tsx";
import { Problem } from "../parts/problem.tsx";
import { Skeleton } from "../parts/skeleton.tsx";
import { Status } from "../parts/status.tsx";
import { For, Time } from "../parts/time.tsx";
import { Title } from "../parts/title.tsx";
import { SetSchedule } from "./form.tsx";
import { when } from "./when.ts";

/** All of one schedule. */
export function Schedule() {
  const name = useRoute().params.name ?? "";
  const whole = useLoad(async (signal) => {
    const read = await tagged(api.GET("/v1/schedules/{name}",
      { signal, params: { path: { name } }, parseAs: "text" }));
    const text = read.value as string;
    const schedule = JSON.parse(text) as Schemas["Schedule"];
    return { schedule, texts: members(text), etag: read.etag };
  }, [name], 3000);
  const s = whole.data?.schedule;
  return (
    <>
      <Title text={name} doc="schedules.md">{s?.paused_at && <Status status="paused" />}</Title>
      <Problem error={whole.error} retry={whole.reload} />
      <Skeleton of={whole} />
      {s && (
        <>
          <Actions schedule={s} texts={whole.data?.texts ?? {}} etag={whole.data?.etag}
            changed={whole.reload} />
          <p>
            It submits a task of <a href={`/console/types/${s.type}`}>{s.type}</a> {when(s)}.
          </p>
          {s.last_error && (
            <p class="problem">
              Its task could not be submitted<For since={s.failing_since} />: {s.last_error}
            </p>
          )}
          <NextRuns schedule={s} />
          <Facts schedule={s} />
          <Json label="Context" text={whole.data?.texts.context} />
        </>
      )}
    </>
  );
}

interface ActionsProps {
  schedule: Schemas["Schedule"];
  texts: Record<string, string>;
  etag: string | undefined;
  changed: () => Promise<void>;
}

function Actions({ schedule: s, texts, etag, changed }: ActionsProps) {
  const { route } = useLocation();
  const path = { params: { path: { name: s.name } } };
  const pause = async () => {
    await answer(api.POST("/v1/schedules/{name}/pause", path));
    await changed();
    return `${s.name} is paused`;
  };
  const resume = async () => {
    await answer(api.POST("/v1/schedules/{name}/resume", path));
    await changed();
    return `${s.name} is resumed`;
  };
  const trigger = async () => {
    const task = await answer(api.POST("/v1/schedules/{name}/trigger", path));
    route(`/console/tasks/${encodeURIComponent(task.id)}`);
    return `${task.id} is submitted`;
  };
  const remove = async () => {
    await answer(api.DELETE("/v1/schedules/{name}", path));
    route("/console/schedules");
    return `${s.name} is deleted`;
  };
  return (
    <p class="buttons">
      {s.paused_at
        ? <Action key="resume" label="Resume" scope="operate" run={resume}
            ask={<p>It goes on with its next run. Those that passed meanwhile have no tasks.</p>} />
        : <Action key="pause" label="Pause" scope="operate" run={pause} />}
      <Action label="Trigger now" scope="operate" run={trigger}
        ask={<p>Its task is submitted now. Its runs stay as they are.</p>} />
      <SetSchedule schedule={s} texts={texts} etag={etag} saved={changed} />
      <Action label="Delete" scope="manage" danger run={remove} ask={
        <>
          <p>It submits no more tasks. Those that it has submitted stay.</p>
          <TypedName name={s.name} />
        </>
      } />
    </p>
  );
}

const run = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });

function NextRuns({ schedule: s }: { schedule: Schemas["Schedule"] }) {
  return (
    <section>
      <h2>Next runs</h2>
      {s.paused_at && <p>It was paused <Time at={s.paused_at} />, and has none.</p>}
      {!s.paused_at && s.next_runs.length === 0 && <p>It has ended.</p>}
      <ul>
        {s.next_runs.map((at) => (
          <li key={at}>{run.format(new Date(at))}, <Time at={at} /></li>
        ))}
      </ul>
      {s.next_runs.length > 0 && (
        <p class="quiet">In your time zone, {run.resolvedOptions().timeZone}.</p>
      )}
    </section>
  );
}

const overlaps = {
  queue: "the next one is submitted anyway",
  skip: "the run is skipped",
  replace: "that task is cancelled first",
};

const catchUps = {
  none: "have no tasks",
  last: "only the latest has a task",
  all: "all have tasks",
};

function Facts({ schedule: s }: { schedule: Schemas["Schedule"] }) {
  return (
    <section>
      <h2>Settings</h2>
      <dl class="facts">
        <div>
          <dt>{s.every ? "Every" : "Cron"}</dt>
          <dd><code>{s.every ?? s.cron}</code> {!s.every && (s.time_zone ?? "UTC")}</dd>
        </div>
        <div><dt>If the last task is not final</dt><dd>{overlaps[s.overlap]}</dd></div>
        <div>
          <dt>Missed runs</dt>
          <dd>{catchUps[s.catch_up]}{s.catch_up === "all" && `, up to ${s.catch_up_limit}`}</dd>
        </div>
        {s.starts_at && <div><dt>Begins</dt><dd><Time at={s.starts_at} /></dd></div>}
        {s.ends_at && <div><dt>Ends</dt><dd><Time at={s.ends_at} /></dd></div>}
        {s.last_run_at && (
          <div>
            <dt>Last run</dt>
            <dd>
              <Time at={s.last_run_at} />{" "}
              {s.last_task_id && (
                <a href={`/console/tasks/${s.last_task_id}`}>{s.last_task_id}</a>
              )}
            </dd>
          </div>
        )}
        <div>
          <dt>Skipped runs</dt>
          <dd>
            {count(s.skipped)}
            {s.last_skipped_at && <>, the last <Time at={s.last_skipped_at} /></>}
          </dd>
        </div>
        {s.priority !== undefined && (
          <div><dt>Head start of its tasks</dt><dd>{JSON.stringify(s.priority)} s</dd></div>
        )}
        {s.retry && <div><dt>Retries</dt><dd><code>{JSON.stringify(s.retry)}</code></dd></div>}
        {s.depends_on && (
          <div><dt>Depends on</dt><dd><code>{JSON.stringify(s.depends_on)}</code></dd></div>
        )}
        <div><dt>Version</dt><dd>{s.version}, <Time at={s.updated_at} /></dd></div>
      </dl>
    </section>
  );
}
