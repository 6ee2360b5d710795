import { feedError, stats, useFeed } from "../feed.ts";
import { count, latency, rate } from "../format.ts";
import { Problem } from "../parts/problem.tsx";
import { Table } from "../parts/rows.tsx";
import { Recent, Sparkline } from "../parts/sparkline.tsx";
import { Time } from "../parts/time.tsx";
import { waitText } from "../task/why.tsx";
import { Expired } from "./expired.tsx";

/** What happens now with the tasks of a type. */
export function TypeStats({ type }: { type: string }) {
  useFeed();
  const s = stats.value?.find((one) => one.type === type);
  if (!s) return <Problem error={feedError.value} />;
  const list = (status: string) => `/console/tasks?type=${type}&status=${status}&children=true`;
  const counts = ["waiting", "pending", "running", "succeeded", "failed", "cancelled"] as const;
  return (
    <section>
      <h2 class="hidden">Now</h2>
      <dl class="totals">
        {counts.map((status) => (
          <div key={status}>
            <dt>{status}</dt>
            <dd>
              <a href={list(status)}>{count(s[status])}</a>
              {status === "failed" && <Expired stats={s} />}
            </dd>
          </div>
        ))}
      </dl>
      <dl class="facts">
        <div><dt>Submitted</dt><dd>{rate(s.rates.submitted)}</dd></div>
        <div>
          <dt>Finished</dt>
          <dd>{rate(s.rates.finished)} <Recent value={s.rates.finished} show={Sparkline} /></dd>
        </div>
        <div><dt>Attempts that ended</dt><dd>{rate(s.rates.attempts)}</dd></div>
        <div><dt>Failed attempts</dt><dd>{rate(s.rates.failures)}</dd></div>
        {s.rates.snoozes > 0 && (
          <div><dt>Put off by workers</dt><dd>{rate(s.rates.snoozes)}</dd></div>
        )}
        <div><dt>Attempts took, p50 / p99</dt><dd>{latency(s.latency)}</dd></div>
        <div><dt>Tasks waited when due</dt><dd>{latency(s.wait)}</dd></div>
        {(s.stage_waits ?? []).length > 1 && s.stage_waits?.map((w) => (
          <div key={w.stage}><dt>Waited in {w.stage}</dt><dd>{latency(w)}</dd></div>
        ))}
        {s.stage_claims?.map((c) => (
          <div key={c.stage}>
            <dt>In vain in {c.stage}</dt>
            <dd>{count(c.late_votes)} late votes, {count(c.closed_windows)} closed windows</dd>
          </div>
        ))}
        <div><dt>From submit to end</dt><dd>{latency(s.turnaround)}</dd></div>
      </dl>
      {!!s.backlog?.length && (
        <>
          <h3>Due, and not under way</h3>
          <Table label="Due tasks by what they wait for"
            columns={[{ n: "Tasks" }, "Why", "Stage", "Oldest due"]}>
            {s.backlog.map((b) => (
              <tr key={b.waits_for + b.stage}>
                <td class="n">{count(b.tasks)}</td>
                <td>
                  {waitText(b.waits_for)}
                  {b.waits_because && <div class="quiet">{b.waits_because}</div>}
                </td>
                <td>{b.stage}</td><td><Time at={b.oldest_due} /></td>
              </tr>
            ))}
          </Table>
        </>
      )}
    </section>
  );
}
