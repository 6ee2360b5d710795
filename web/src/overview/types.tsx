import type { Schemas } from "../api.ts";
import { count, latency, rate } from "../format.ts";
import { Table } from "../parts/rows.tsx";
import { Recent, Sparkline } from "../parts/sparkline.tsx";
import { Time } from "../parts/time.tsx";
import { waitText } from "../task/why.tsx";
import { Expired } from "../types/expired.tsx";
import { byTrouble, troubleOf } from "./trouble.ts";

type Stats = Schemas["Stats"];

const columns = ["Type", { n: "In" }, { n: "Out" }, { n: "Due" }, { n: "Running" },
  { n: "Failed" }, { n: "Failing" }, "Oldest due", "Out, last minutes", { n: "Waiting" },
  { n: "Succeeded" }, { n: "p50 / p99" }, { n: "Waits" }, { n: "Submit to end" }];

/** The task types, those in trouble first. */
export function Types({ stats }: { stats: Stats[] }) {
  return (
    <section>
      <h2>Task types</h2>
      <Table label="Task types" columns={columns}>
        {byTrouble(stats).map((s) => <TypeRow key={s.type} stats={s} />)}
      </Table>
    </section>
  );
}

function TypeRow({ stats: s }: { stats: Stats }) {
  const list = (status: string) => `/console/tasks?type=${s.type}&status=${status}&children=true`;
  const trouble = troubleOf(s);
  return (
    <tr>
      <th scope="row">
        <a data-row href={`/console/tasks?type=${s.type}`}>{s.type}</a>{" "}
        {s.paused && <span class="status paused">paused</span>}
        {!s.paused && trouble && <span class={`status ${trouble.kind}`}>{trouble.text}</span>}
      </th>
      <td class="n">{rate(s.rates.submitted)}</td>
      <td class="n">{rate(s.rates.finished)}</td>
      <td class="n"><a href={list("pending")}>{count(s.pending)}</a></td>
      <td class="n"><a href={list("running")}>{count(s.running)}</a></td>
      <td class={s.failed ? "n bad" : "n"}>
        <a href={list("failed")}>{count(s.failed)}</a><Expired stats={s} />
      </td>
      <td class={s.rates.failures ? "n bad" : "n"}>
        <a href={`/console/failures?type=${s.type}&last=15m`}>{rate(s.rates.failures)}</a>
      </td>
      <td>
        <Time at={s.oldest_due} />
        {s.backlog?.[0] && <span class="quiet"> {waitText(s.backlog[0].waits_for)}</span>}
      </td>
      <td><Recent value={s.rates.finished} show={Sparkline} /></td>
      <td class="n"><a href={list("waiting")}>{count(s.waiting)}</a></td>
      <td class="n"><a href={list("succeeded")}>{count(s.succeeded)}</a></td>
      <td class="n">{latency(s.latency)}</td>
      <td class="n">{latency(s.wait)}</td>
      <td class="n">{latency(s.turnaround)}</td>
    </tr>
  );
}
