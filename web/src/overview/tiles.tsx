import { answer, api, type Schemas } from "../api.ts";
import { count, rate } from "../format.ts";
import { useLoad } from "../load.ts";
import { Bars } from "../parts/sparkline.tsx";
import { joined, type Read, valuesOf } from "./hour.ts";

type Stats = Schemas["Stats"];

const pause = 20_000; // between two loads, in ms
const minute = 60_000, few = 5; // minutes in a bar

/** Numbers of all types, as links to what they count, with their last hour. */
export function Tiles({ stats }: { stats: Stats[] }) {
  const load = useLoad((signal) => answer(api.GET("/v1/stats/history", { signal })), [], pause);
  const hour = load.data;
  const sum = (of: (s: Stats) => number) => stats.reduce((all, s) => all + of(s), 0);
  const list = (status: string) => `/console/tasks?status=${status}&children=true`;
  const counts = (of: Read) => joined(valuesOf(hour, of, minute), few, (a, b) => a + b);
  const samples = (of: Read) => joined(valuesOf(hour, of, minute), few, Math.max);
  const failures = counts((p) => p.failed);
  const failed = failures.reduce((a, b) => a + b, 0);
  const expired = sum((s) => s.expired ?? 0);
  const attempts = sum((s) => s.rates.failures);
  return (
    <dl class="totals tiles">
      <Tile name="Failed, last hour" href="/console/failures?last=1h" bad={failed > 0}
        value={hour ? count(failed) : "–"} values={failures} />
      <Tile name="Failed attempts" href="/console/failures?last=15m" bad={attempts > 0}
        value={rate(attempts)} values={counts((p) => p.failed_attempts)} />
      <Tile name="Due" href={list("pending")} value={count(sum((s) => s.pending))}
        values={samples((p) => p.pending)} />
      <Tile name="Waiting" href={list("waiting")} value={count(sum((s) => s.waiting))}
        values={samples((p) => p.waiting)} />
      <Tile name="Running" href={list("running")} value={count(sum((s) => s.running))}
        values={samples((p) => p.running)} />
      <Tile name="Submitted" href="/console/tasks" value={rate(sum((s) => s.rates.submitted))}
        values={counts((p) => p.submitted)} />
      <Tile name="Finished" href={list("succeeded")} value={rate(sum((s) => s.rates.finished))}
        values={counts((p) => p.succeeded)} />
      <Tile name="Failed, kept" href={list("failed")} value={count(sum((s) => s.failed))} />
      {expired > 0 && (
        <Tile name="Expired of them" href={`${list("failed")}&code=expired`}
          value={count(expired)} />
      )}
    </dl>
  );
}

interface TileProps {
  name: string;
  value: string;
  href: string;
  bad?: boolean;
  values?: number[];
}

function Tile({ name, value, href, bad = false, values }: TileProps) {
  return (
    <div>
      <dt>{name}</dt>
      <dd class={bad ? "bad" : ""}>
        <a href={href} aria-label={`${name}: ${value}`}>{value}</a>
        {values && <Bars values={values} bad={name.startsWith("Failed")} />}
      </dd>
    </div>
  );
}
