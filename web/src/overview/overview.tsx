import { answer, api, type Schemas } from "../api.ts";
import { count, rate } from "../format.ts";
import { useLoad } from "../load.ts";
import { Empty } from "../parts/empty.tsx";
import { Problem } from "../parts/problem.tsx";
import { Time } from "../parts/time.tsx";
import { Title } from "../parts/title.tsx";
import { waitText } from "../task/why.tsx";
import { feedError, stats, useFeed } from "./feed.ts";
import { History, Sparkline } from "./sparkline.tsx";

/** What happens now, for each task type. */
export function Overview() {
  useFeed();
  const quota = useLoad(
    async (signal) => (await answer(api.GET("/v1/quota", { signal }))).data, [], 20_000);
  return (
    <>
      <Title text="Overview" />
      <Problem error={feedError.value} />
      {stats.value && <Totals stats={stats.value} />}
      {stats.value?.length === 0 && (
        <Empty title="There are no task types yet">
          Describe one in a file, and apply it: <code>asyncflow types apply -f asyncflow.yaml</code>
        </Empty>
      )}
      {!!stats.value?.length && <Types stats={stats.value} />}
      {quota.data && <Quotas quotas={quota.data} />}
    </>
  );
}

function Totals({ stats }: { stats: Schemas["Stats"][] }) {
  const sum = (of: (s: Schemas["Stats"]) => number) => stats.reduce((all, s) => all + of(s), 0);
  const facts: [string, string][] = [
    ["In line", count(sum((s) => s.waiting + s.pending))],
    ["Running", count(sum((s) => s.running))],
    ["Failed", count(sum((s) => s.failed))],
    ["Submitted", rate(sum((s) => s.rates.submitted))],
    ["Finished", rate(sum((s) => s.rates.finished))],
    ["Failed attempts", rate(sum((s) => s.rates.failures))],
  ];
  return (
    <dl class="totals">
      {facts.map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}
    </dl>
  );
}

function Types({ stats }: { stats: Schemas["Stats"][] }) {
  return (
    <div class="scroll">
      <table>
        <caption class="hidden">Task types</caption>
        <thead>
          <tr>
            <th scope="col">Type</th><th scope="col" class="n">Waiting</th>
            <th scope="col" class="n">Pending</th><th scope="col" class="n">Running</th>
            <th scope="col" class="n">Succeeded</th><th scope="col" class="n">Failed</th>
            <th scope="col" class="n">In</th><th scope="col" class="n">Out</th>
            <th scope="col">Out, last minutes</th><th scope="col">Oldest due</th>
          </tr>
        </thead>
        <tbody>{stats.map((s) => <TypeRow key={s.type} stats={s} />)}</tbody>
      </table>
    </div>
  );
}

function TypeRow({ stats: s }: { stats: Schemas["Stats"] }) {
  const list = (status: string) => `/console/tasks?type=${s.type}&status=${status}`;
  return (
    <tr>
      <th scope="row">
        <a data-row href={`/console/tasks?type=${s.type}`}>{s.type}</a>
        {s.paused && <span class="status paused">paused</span>}
      </th>
      <td class="n"><a href={list("waiting")}>{count(s.waiting)}</a></td>
      <td class="n"><a href={list("pending")}>{count(s.pending)}</a></td>
      <td class="n"><a href={list("running")}>{count(s.running)}</a></td>
      <td class="n"><a href={list("succeeded")}>{count(s.succeeded)}</a></td>
      <td class={s.failed ? "n bad" : "n"}><a href={list("failed")}>{count(s.failed)}</a></td>
      <td class="n">{rate(s.rates.submitted)}</td>
      <td class="n">{rate(s.rates.finished)}</td>
      <td><History value={s.rates.finished} show={Sparkline} /></td>
      <td>
        <Time at={s.oldest_due} />
        {s.backlog?.[0] && <span class="quiet"> {waitText(s.backlog[0].waits_for)}</span>}
      </td>
    </tr>
  );
}

function Quotas({ quotas }: { quotas: Schemas["QuotaUsage"][] }) {
  const limited = quotas.filter((q) => q.limit !== undefined && q.used !== undefined);
  if (limited.length === 0) return null;
  return (
    <section>
      <h2>Quotas</h2>
      <dl class="facts">
        {limited.map(({ name, limit = 0, used = 0 }) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>
              <meter max={limit} value={used} high={limit * 0.9} aria-label={name} />
              {" "}{count(used)} of {count(limit)}
            </dd>
          </div>
        ))}
      </dl>
    </section>
  );
}
