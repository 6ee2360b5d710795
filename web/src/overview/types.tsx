import { answer, api, type Schemas } from "../api.ts";
import { count, latency, rate } from "../format.ts";
import { useLoad } from "../load.ts";
import { Table } from "../parts/rows.tsx";
import { Bars } from "../parts/sparkline.tsx";
import { Time } from "../parts/time.tsx";
import { waitText } from "../task/why.tsx";
import { Expired } from "../types/expired.tsx";
import { type Hour, valuesOf } from "./hour.ts";
import { byTrouble, troubleOf } from "./trouble.ts";

type Stats = Schemas["Stats"];

const pause = 60_000; // between two loads of what the types did, in ms

const columns = ["Type", { n: "In" }, { n: "Out" }, { n: "Due" }, { n: "Running" },
  { n: "Failed" }, { n: "Failing" }, "Oldest due", { n: "Waiting" },
  { n: "Succeeded" }, { n: "p50 / p99" }, { n: "Waits" }, { n: "Submit to end" }];

/** The task types, those in trouble first, with their last hour in steps of five minutes. */
export function Types({ stats }: { stats: Stats[] }) {
  const hour = useLoad((signal) => answer(api.GET("/v1/stats/history",
    { signal, params: { query: { by_type: true, step: "5m" } } })), [], pause).data;
  const points = new Map(hour?.types?.map((t) => [t.type, t.points]));
  return (
    <section>
      <h2>Task types</h2>
      <Table cards label="Task types" columns={columns}>
        {byTrouble(stats).map((s) => (
          <TypeRow key={s.type} stats={s}
            hour={hour && { ...hour, points: points.get(s.type) ?? [] }} />
        ))}
      </Table>
    </section>
  );
}

function TypeRow({ stats: s, hour }: { stats: Stats; hour: Hour | undefined }) {
  const list = (status: string) => `/console/tasks?type=${s.type}&status=${status}&children=true`;
  const trouble = troubleOf(s);
  return (
    <tr>
      <th scope="row">
        <a data-row href={`/console/tasks?type=${s.type}`}>{s.type}</a>{" "}
        {s.paused && <span class="status paused">paused</span>}
        {!s.paused && trouble && <span class={`status ${trouble.kind}`}>{trouble.text}</span>}
      </th>
      <td class="n" data-label="In">
        {rate(s.rates.submitted)}<Bars values={valuesOf(hour, (p) => p.submitted)} />
      </td>
      <td class="n" data-label="Out">
        {rate(s.rates.finished)}
        <Bars values={valuesOf(hour, (p) => p.succeeded + p.failed + p.cancelled)} />
      </td>
      <td class="n" data-label="Due">
        <a href={list("pending")}>{count(s.pending)}</a>
        <Bars values={valuesOf(hour, (p) => p.pending)} />
      </td>
      <td class="n" data-label="Running"><a href={list("running")}>{count(s.running)}</a></td>
      <td class={s.failed ? "n bad" : "n"} data-label="Failed">
        <a href={list("failed")}>{count(s.failed)}</a><Expired stats={s} />
      </td>
      <td class={s.rates.failures ? "n bad" : "n"} data-label="Failing">
        <a href={`/console/failures?type=${s.type}&last=15m`}>{rate(s.rates.failures)}</a>
        <Bars bad values={valuesOf(hour, (p) => p.failed_attempts)} />
      </td>
      <td data-label="Oldest due">
        <div>
          <Time at={s.oldest_due} />
          {s.backlog?.[0] && <span class="quiet"> {waitText(s.backlog[0].waits_for)}</span>}
        </div>
      </td>
      <td class="n" data-label="Waiting"><a href={list("waiting")}>{count(s.waiting)}</a></td>
      <td class="n" data-label="Succeeded"><a href={list("succeeded")}>{count(s.succeeded)}</a></td>
      <td class="n" data-label="p50 / p99">
        {latency(s.latency)}<Bars values={valuesOf(hour, (p) => p.duration?.p99_ms ?? 0)} />
      </td>
      <td class="n" data-label="Waits">{latency(s.wait)}</td>
      <td class="n" data-label="To the end">{latency(s.turnaround)}</td>
    </tr>
  );
}
