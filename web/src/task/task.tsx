import { useSignal } from "@preact/signals";
import { useRoute } from "preact-iso";
import { answer, api, type CallError, type Schemas, tagged } from "../api.ts";
import { useLoad } from "../load.ts";
import { members } from "../json.ts";
import { duration, span } from "../format.ts";
import { Copy } from "../parts/copy.tsx";
import { Json } from "../parts/json.tsx";
import { Problem } from "../parts/problem.tsx";
import { Skeleton } from "../parts/skeleton.tsx";
import { Status } from "../parts/status.tsx";
import { Time } from "../parts/time.tsx";
import { Title } from "../parts/title.tsx";
import { branches } from "../parts/ways.tsx";
import { given } from "../types/given.ts";
import { InWords } from "../types/retries.tsx";
import { TaskActions } from "./actions.tsx";
import { Attempts, inputOf, useAttempts } from "./attempts.tsx";
import { Checkpoint } from "./checkpoint.tsx";
import { ClaimRules } from "./claim_rules.tsx";
import { isFinal } from "./final.ts";
import { Headline } from "./headline.tsx";
import { Lifetime } from "./lifetime.tsx";
import { Path, TaskWays } from "./path.tsx";
import { Pipeline } from "./pipeline.tsx";
import { Parents, Relatives } from "./relatives.tsx";
import { Repeat } from "./repeat.tsx";
import { Timeline } from "./timeline.tsx";
import { Told } from "./told.tsx";
import { Trace } from "./trace.tsx";
import { Votes } from "./votes.tsx";
import type { WholeTask } from "./whole.ts";

const pause = 2000; // between two looks at a task that isn't final, in ms

/** All of one task. */
export function Task() {
  const id = useRoute().params.id ?? "";
  const path = { params: { path: { id } } };
  const final = useSignal(false);
  const whole = useLoad<WholeTask>(async (signal) => {
    const { value, etag } = await tagged(
      api.GET("/v1/tasks/{id}", { ...path, signal, parseAs: "text" }));
    const { context, result } = members(value as string);
    const task = JSON.parse(value as string) as Schemas["Task"];
    final.value = isFinal(task);
    return { task, context, result, etag };
  }, [id], final.value ? 0 : pause);
  const task = whole.data?.task;
  const type = useLoad(async (signal) => task && answer(api.GET("/v1/task-types/{type}",
    { signal, params: { path: { type: task.type } } })), [task?.type]);
  if (!whole.data || !task) {
    const gone = whole.error?.status === 404;
    return (
      <>
        <Title text={gone ? `There is no task ${id}` : id} doc="console.md#task" />
        <Problem error={whole.error} retry={whole.reload} />
        {!whole.error && <Skeleton />}
      </>
    );
  }
  return (
    <Shown key={id} whole={whole.data} error={whole.error} reload={whole.reload}
      stages={type.data?.stages ?? []} />
  );
}

interface ShownProps {
  whole: WholeTask;
  error: CallError | undefined;
  reload: () => Promise<void>;
  stages: Schemas["Stage"][];
}

/** A task: what failed and what comes next, how it went, and what it has. */
function Shown({ whole, error, reload, stages }: ShownProps) {
  const { task } = whole;
  const attempts = useAttempts(whole);
  const rows = attempts.data?.rows ?? [];
  const changed = () => {
    void reload();
    void attempts.reload();
  };
  const Drawing = branches(stages) ? TaskWays : Pipeline;
  return (
    <>
      <Parents task={task} />
      <Title text={task.id} doc="console.md#task">
        <Status status={task.status} /> <Copy text={task.id} label="Copy id" />
      </Title>
      <Problem error={error} retry={reload} />
      <Headline task={task} last={rows[rows.length - 1]} />
      <TaskActions whole={whole} stages={stages} changed={changed}
        input={inputOf(whole, attempts)} />
      <Drawing task={task} stages={stages} />
      <Timeline task={task} rows={rows} />
      <Facts task={task} stage={stages.find((s) => s.name === task.stage)} />
      <Path task={task} />
      <Json label="Context" text={whole.context} />
      <Attempts task={task} list={attempts} />
      <Json label="Result" text={whole.result} />
      <Checkpoint task={task} />
      <Relatives task={task} />
      <Votes task={task} stages={stages} />
      <Told task={task} />
      <Repeat whole={whole} />
    </>
  );
}

interface FactsProps {
  task: Schemas["Task"];
  /** The stage in which the task is or was, if there still is one of its name. */
  stage: Schemas["Stage"] | undefined;
}

/** Returns the address of the tasks of all types that a filter finds. */
function found(filter: Record<string, string>): string {
  return `/console/tasks?${new URLSearchParams({ ...filter, children: "true" })}`;
}

function Facts({ task: t, stage }: FactsProps) {
  return (
    <dl class="facts">
      <div><dt>Type</dt><dd><a href={`/console/types/${t.type}`}>{t.type}</a></dd></div>
      <div><dt>Submitted</dt><dd><Time at={t.created_at} /></dd></div>
      {t.order_time && <div><dt>Place in the order</dt><dd><Time at={t.order_time} /></dd></div>}
      {t.deadline && <div><dt>Attempt ends</dt><dd><Time at={t.deadline} /></dd></div>}
      {t.finished_at && <div><dt>Ended</dt><dd><Time at={t.finished_at} /></dd></div>}
      <Lifetime task={t} />
      <ClaimRules task={t} />
      {t.erased && (
        <div>
          <dt>Erased</dt>
          <dd><Time at={t.erased.at} />{t.erased.by && ` by ${t.erased.by}`}</dd>
        </div>
      )}
      {t.turnaround_ms !== undefined && (
        <div><dt>From submit to end</dt><dd>{duration(t.turnaround_ms)}</dd></div>
      )}
      {t.attempt !== undefined && (
        <div><dt>Attempt</dt><dd>{t.attempt} of {t.max_attempts ?? "?"} in {t.stage}</dd></div>
      )}
      {stage?.deliver && <div><dt>The stage is given</dt><dd>{given(stage.deliver)}</dd></div>}
      {t.waits_for === "snooze" && stage?.max_snooze && (
        <div><dt>May be put off for</dt><dd>{span(stage.max_snooze)} in all</dd></div>
      )}
      {t.priority !== undefined && (
        <div><dt>Priority</dt><dd>{JSON.stringify(t.priority)} s</dd></div>
      )}
      {t.retry && (
        <div>
          <dt>Retries of its own</dt>
          <dd><InWords policy={{ ...stage?.retry, ...t.retry }} /></dd>
        </div>
      )}
      {t.key && (
        <div>
          <dt>Key</dt>
          <dd><code>{t.key}</code> <Copy text={t.key} of="the key" /></dd>
        </div>
      )}
      {t.flow_key && <div><dt>Flow key</dt><dd><code>{t.flow_key}</code></dd></div>}
      {t.user && (
        <div><dt>User</dt><dd><a href={found({ user: t.user })}><bdi>{t.user}</bdi></a></dd></div>
      )}
      {t.tags && (
        <div>
          <dt>Tags</dt>
          <dd>{t.tags.map((tag) => <><a href={found({ tags: tag })}>{tag}</a> </>)}</dd>
        </div>
      )}
      {Object.entries(t.metadata ?? {}).map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd><a href={found({ metadata: `${name}=${value}` })}><bdi>{value}</bdi></a></dd>
        </div>
      ))}
      {t.trace && <div><dt>Trace</dt><dd><Trace trace={t.trace} /></dd></div>}
      {t.progress && (
        <div>
          <dt>Progress</dt>
          <dd>
            <progress max={100} value={t.progress.percent} aria-label="Progress" />
            {" "}{t.progress.percent} % {t.progress.note}
          </dd>
        </div>
      )}
    </dl>
  );
}
