import { answer, api } from "../api.ts";
import { HistoryCharts } from "../chart/history.tsx";
import { feedError, stats, useFeed } from "../feed.ts";
import { useLoad } from "../load.ts";
import { Problem } from "../parts/problem.tsx";
import { Skeleton } from "../parts/skeleton.tsx";
import { Title } from "../parts/title.tsx";
import { Alerts } from "./alerts.tsx";
import { Nodes } from "./nodes.tsx";
import { Quotas } from "./quotas.tsx";
import { Start } from "./start.tsx";
import { Still } from "./still.tsx";
import { Tiles } from "./tiles.tsx";
import { Types } from "./types.tsx";

/** What happens now, worst first: what stands still, alerts, then each task type. */
export function Overview() {
  useFeed();
  const quota = useLoad(
    async (signal) => (await answer(api.GET("/v1/quota", { signal }))).data, [], 20_000);
  const all = stats.value;
  return (
    <>
      <Title text="Overview" doc="console.md#overview" />
      <Problem error={feedError.value} />
      {all && <Still stats={all} />}
      <Alerts />
      {!all && !feedError.value && <Skeleton />}
      {!!all?.length && <Tiles stats={all} />}
      {!!all?.length && <HistoryCharts />}
      {!!all?.length && <Types stats={all} />}
      {all?.length === 0 && <Start />}
      {quota.data && <Quotas quotas={quota.data} />}
      <Nodes />
    </>
  );
}
