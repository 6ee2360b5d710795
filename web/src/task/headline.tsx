import type { Schemas } from "../api.ts";
import { now } from "../clock.ts";
import { Time } from "../parts/time.tsx";
import { ErrorText } from "./error.tsx";
import { RunsNow } from "./run.tsx";
import { Why } from "./why.tsx";

type Task = Schemas["Task"];

interface HeadlineProps {
  task: Task;
  last: Schemas["Attempt"] | undefined; // the last one of those that are listed
}

/** What failed, and what comes next. */
export function Headline({ task: t, last }: HeadlineProps) {
  const next = !t.finished_at && last?.next_time;
  // A head start moves the place in the order, not the time at which the task is due.
  const due = t.waits_for === "delay" && t.priority === undefined && t.order_time;
  return (
    <>
      {t.error && <Failed task={t} />}
      {t.run && <RunsNow run={t.run} />}
      <Why task={t} />
      {due && <p>It is due <Time at={due} />.</p>}
      {next && Date.parse(next) > now.value && <p>The next attempt is <Time at={next} />.</p>}
    </>
  );
}

/** The last error of a task, where it was, and a link to the tasks that have the same. */
function Failed({ task: t }: { task: Task }) {
  const same = new URLSearchParams({ fingerprint: t.fingerprint ?? "", children: "true",
    ...(t.status === "failed" && { status: "failed" }) });
  return (
    <section>
      <p>
        <strong class="bad">{t.status === "failed" ? "Failed" : "The last attempt failed"}</strong>
        {t.stage && <> in {t.stage}</>}
        {t.status === "failed" && t.attempt !== undefined && (
          <>, attempt {t.attempt} of {t.max_attempts ?? "?"}</>
        )}
        {t.status === "failed" && t.finished_at && <>, <Time at={t.finished_at} /></>}
        {t.error_code && <>: <code>{t.error_code}</code></>}.{" "}
        {t.fingerprint && <a href={`/console/tasks?${same}`}>Other tasks with this error</a>}
      </p>
      <ErrorText text={t.error ?? ""} of="the error" />
    </section>
  );
}
