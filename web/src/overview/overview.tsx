import { answer, api, type Schemas } from "../api.ts";
import { feedError, stats, useFeed } from "../feed.ts";
import { amount, count, latency, rate, words } from "../format.ts";
import { useLoad } from "../load.ts";
import { NoTypes } from "../parts/empty.tsx";
import { Problem } from "../parts/problem.tsx";
import { Table } from "../parts/rows.tsx";
import { Recent, Sparkline } from "../parts/sparkline.tsx";
import { Time } from "../parts/time.tsx";
import { Title } from "../parts/title.tsx";
import { waitText } from "../task/why.tsx";
import { Expired } from "../types/expired.tsx";
import { Now } from "./now.tsx";

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
      <Now />
      {stats.value?.length === 0 && <NoTypes />}
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
    ...expiredOf(sum((s) => s.expired ?? 0)),
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

/** Returns how many tasks have expired as a fact, if any has. */
const expiredOf = (n: number): [string, string][] => n > 0 ? [["Expired of them", count(n)]] : [];

const columns = ["Type", { n: "Waiting" }, { n: "Pending" }, { n: "Running" }, { n: "Succeeded" },
  { n: "Failed" }, { n: "In" }, { n: "Out" }, "Out, last minutes",
  { n: "p50 / p99" }, { n: "Waits" }, { n: "Submit to end" }, "Oldest due"];

function Types({ stats }: { stats: Schemas["Stats"][] }) {
  return (
    <section>
      <h2>Task types</h2>
      <Table label="Task types" columns={columns}>
        {stats.map((s) => <TypeRow key={s.type} stats={s} />)}
      </Table>
    </section>
  );
}

function TypeRow({ stats: s }: { stats: Schemas["Stats"] }) {
  const list = (status: string) => `/console/tasks?type=${s.type}&status=${status}&children=true`;
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
      <td class={s.failed ? "n bad" : "n"}>
        <a href={list("failed")}>{count(s.failed)}</a><Expired stats={s} />
      </td>
      <td class="n">{rate(s.rates.submitted)}</td>
      <td class="n">{rate(s.rates.finished)}</td>
      <td><Recent value={s.rates.finished} show={Sparkline} /></td>
      <td class="n">{latency(s.latency)}</td>
      <td class="n">{latency(s.wait)}</td>
      <td class="n">{latency(s.turnaround)}</td>
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
            <dt>{words(name)}</dt>
            <dd>
              <meter max={limit} value={used} high={limit * 0.9} aria-label={words(name)} />
              {" "}{amount(name, used)} of {amount(name, limit)}
            </dd>
          </div>
        ))}
      </dl>
    </section>
  );
}
