import { answer, api, type Schemas } from "../api.ts";
import { count, rate } from "../format.ts";
import { useLoad } from "../load.ts";

type Stats = Schemas["Stats"];

const pause = 20_000; // between two loads, in ms

/** Numbers of all types, as links to what they count. */
export function Tiles({ stats }: { stats: Stats[] }) {
  const failed = useLoad(failedLately, [], pause);
  const sum = (of: (s: Stats) => number) => stats.reduce((all, s) => all + of(s), 0);
  const list = (status: string) => `/console/tasks?status=${status}&children=true`;
  const expired = sum((s) => s.expired ?? 0);
  const attempts = sum((s) => s.rates.failures);
  return (
    <dl class="totals">
      <Tile name="Failed, last hour" href="/console/failures?last=1h" bad={!!failed.data}
        value={failed.data === undefined ? "–" : count(failed.data)} />
      <Tile name="Failed attempts" href="/console/failures?last=15m" bad={attempts > 0}
        value={rate(attempts)} />
      <Tile name="Due" href={list("pending")} value={count(sum((s) => s.pending))} />
      <Tile name="Waiting" href={list("waiting")} value={count(sum((s) => s.waiting))} />
      <Tile name="Running" href={list("running")} value={count(sum((s) => s.running))} />
      <Tile name="Submitted" href="/console/tasks" value={rate(sum((s) => s.rates.submitted))} />
      <Tile name="Finished" href={list("succeeded")} value={rate(sum((s) => s.rates.finished))} />
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
}

function Tile({ name, value, href, bad = false }: TileProps) {
  return (
    <div>
      <dt>{name}</dt>
      <dd class={bad ? "bad" : ""}><a href={href} aria-label={`${name}: ${value}`}>{value}</a></dd>
    </div>
  );
}

/** Returns how many tasks failed in the last hour, up to the last full minute. */
async function failedLately(signal: AbortSignal): Promise<number> {
  const { points } = await answer(api.GET("/v1/stats/history", { signal }));
  return points.reduce((all, p) => all + (p.failed ?? 0), 0);
}
