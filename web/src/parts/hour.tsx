import type { Schemas } from "../api.ts";
import { now } from "../clock.ts";
import { count, latency } from "../format.ts";
import { Table } from "./rows.tsx";
import { Time } from "./time.tsx";

type Minute = Schemas["EndpointMinute"];

const minute = 60_000, bars = 60, step = 10, height = 80;

/** A bar for each minute of the last hour: attempts, and the failures among them. */
export function Hour({ minutes }: { minutes: Minute[] }) {
  const first = Math.floor(now.value / minute) - bars + 1;
  const shown = minutes.filter((m) => Date.parse(m.at) / minute >= first);
  const top = Math.max(1, ...shown.map((m) => m.attempts));
  const sum = (of: (m: Minute) => number) => count(shown.reduce((all, m) => all + of(m), 0));
  const tall = (n: number) => (n ? Math.max(1, (n / top) * height) : 0);
  const label = "Attempts per minute in the last hour: " +
    `${sum((m) => m.attempts)} in all, of which ${sum((m) => m.failures)} failed`;
  return (
    <>
      <figure class="chart hour">
        <svg viewBox={`0 0 ${bars * step} ${height}`} preserveAspectRatio="none" height={height}
          role="img" aria-label={label}>
          {shown.map((m) => {
            const x = (Math.floor(Date.parse(m.at) / minute) - first) * step + 1;
            const bar = (n: number, kind?: string) => (
              <rect class={kind} x={x} y={height - tall(n)} width={step - 2} height={tall(n)} />
            );
            return (
              <g key={m.at}>
                <title>
                  {`${timeOf(m.at)}: ${count(m.attempts)} attempts, ${count(m.failures)} failed`}
                </title>
                {bar(m.attempts)}
                {bar(m.failures, "bad")}
              </g>
            );
          })}
        </svg>
        <figcaption class="quiet">
          <span>an hour ago</span><span>at most {count(top)} in a minute</span><span>now</span>
        </figcaption>
      </figure>
      <details>
        <summary>As a table</summary>
        <Table label="Attempts per minute"
          columns={["Minute", { n: "Attempts" }, { n: "Failed" }, { n: "p50 / p99" }]}>
          {shown.toReversed().map((m) => (
            <tr key={m.at}>
              <td>{timeOf(m.at)}, <Time at={m.at} /></td>
              <td class="n">{count(m.attempts)}</td>
              <td class={m.failures ? "n bad" : "n"}>{count(m.failures)}</td>
              <td class="n">{latency(m.latency)}</td>
            </tr>
          ))}
        </Table>
      </details>
    </>
  );
}

const timeOf = (at: string) => new Date(at).toLocaleTimeString(undefined, { timeStyle: "short" });
