import { answer, api } from "../api.ts";
import { count, duration, span } from "../format.ts";
import { useLoad } from "../load.ts";
import { Problem } from "../parts/problem.tsx";
import { waitText } from "../task/why.tsx";
import { Chart } from "./chart.tsx";
import { Marks } from "./marks.tsx";
import { type Range, Ranges, useRange } from "./range.tsx";
import { gaps, type History, type Point, reasons, type Series } from "./series.ts";

interface HistoryChartsProps {
  /** Nothing: all types of the tenant together. */
  type?: string;
  /** Only of this stage; nothing: of the whole type. */
  stage?: string;
}

/** What tasks did over time: charts with the marks that may explain a change. */
export function HistoryCharts({ type, stage }: HistoryChartsProps) {
  const range = useRange(type ? "1h" : "24h");
  const load = useLoad((signal) => {
    const [from, until] = range.span().map((at) => new Date(at * 1000).toISOString());
    if (!type) {
      return answer(api.GET("/v1/stats/history", { signal, params: { query: { from, until } } }));
    }
    return answer(api.GET("/v1/stats/{type}/history",
      { signal, params: { path: { type }, query: { from, until, stage } } }));
  }, [type, stage, range.key], again[range.last] ?? 0);
  const h = load.data;
  return (
    <section class="charts">
      <h2>History{stage && ` of stage ${stage}`}</h2>
      <Ranges range={range} />
      <Problem error={load.error} retry={load.reload} />
      {(h || load.loading) && (
        <>
          {!type && <OfAll h={h} range={range} />}
          {type && (stage ? <OfStage h={h} range={range} /> : <OfType h={h} range={range} />)}
          {h && gaps(h).length > 0 && (
            <p class="quiet">Hatched: no node recorded then.</p>
          )}
          {h && <Marks marks={h.marks} cut={h.marks_cut} named={!type} />}
        </>
      )}
    </section>
  );
}

/** After how many ms a range is loaded again. What was zoomed into isn't. */
const again: Record<string, number> =
  { "1h": 20_000, "24h": 60_000, "7d": 300_000, "30d": 300_000 };

interface ChartsProps {
  h: History | undefined;
  range: Range;
}

const per = (h: History | undefined) => (h ? `, per ${span(h.step).replace(/^1 /, "")}` : "");

const ended: Series[] = [
  { name: "finished", colour: "good", shape: "area", zero: "count", of: (p) => p.succeeded },
  { name: "failed", colour: "bad", shape: "bars", zero: "count", of: (p) => p.failed },
];

const overall: Series[] = [
  ...ended,
  { name: "submitted", colour: "link", shape: "line", zero: "count", of: (p) => p.submitted },
];

function OfAll({ h, range: { zoom, reset } }: ChartsProps) {
  return <Chart history={h} zoom={zoom} reset={reset} series={overall} text={count}
    title={`Tasks submitted, finished and failed${per(h)}`} />;
}

const finished: Series[] = [
  ...ended,
  { name: "retried", colour: "busy", shape: "dashes", zero: "count", of: (p) => p.retried },
];

function OfType({ h, range: { zoom, reset } }: ChartsProps) {
  const all = { history: h, zoom, reset };
  return (
    <div class="plots">
      <Chart {...all} title={`Tasks finished and failed, attempts retried${per(h)}`}
        series={finished} text={count} />
      <Chart {...all} title="Due tasks, by what they waited for"
        series={backlog(h)} text={count} />
      <Chart {...all} title={timesTitle(h)} series={times(h)} text={duration} />
      <Chart {...all} title="How long due tasks waited" series={percentiles((p) => p.wait)}
        text={duration} />
    </div>
  );
}

const attempts: Series[] = [
  { name: "attempts", colour: "link", shape: "area", zero: "count", of: (p) => p.attempts },
];

function OfStage({ h, range: { zoom, reset } }: ChartsProps) {
  const all = { history: h, zoom, reset };
  return (
    <div class="plots">
      <Chart {...all} title={`Attempts that workers ended${per(h)}`} series={attempts}
        text={count} />
      <Chart {...all} title={timesTitle(h)} series={times(h)} text={duration} />
      <Chart {...all} title="How long due tasks waited" series={percentiles((p) => p.wait)}
        text={duration} />
    </div>
  );
}

type Times = Point["wait"];

/** Returns the percentiles of a time. Where nothing took time there is none. */
function percentiles(of: (p: Point) => Times): Series[] {
  return [
    { name: "p50", colour: "link", shape: "line", of: (p) => of(p)?.p50_ms || undefined },
    { name: "p95", colour: "busy", shape: "dashes", of: (p) => of(p)?.p95_ms || undefined },
    { name: "p99", colour: "bad", shape: "dots", of: (p) => of(p)?.p99_ms || undefined },
  ];
}

/** Reports whether attempts at endpoints are known. Claimed tasks have averages only. */
const delivered = (h: History | undefined): boolean =>
  !h || h.points.some((p) => p.duration?.p99_ms) || !h.points.some((p) => p.average_ms);

const timesTitle = (h: History | undefined): string =>
  delivered(h) ? "How long attempts took" : "How long attempts took on average";

function times(h: History | undefined): Series[] {
  if (delivered(h)) return percentiles((p) => p.duration);
  return [{ name: "average", colour: "link", shape: "line",
    of: (p) => p.average_ms || undefined }];
}

/** Returns how many tasks were due, for other reasons than some; undefined: it isn't known. */
const sum = (p: Point, but: string[] = []): number | undefined => p.backlog &&
  Object.entries(p.backlog).reduce((all, [why, n]) => (but.includes(why) ? all : all + n), 0);

/** Returns the backlog in all, and by its most frequent reasons. */
function backlog(h: History | undefined): Series[] {
  const all: Series[] = [
    { name: "all", colour: "wait", shape: "area", zero: "sample", of: (p) => sum(p) }];
  const known = h ? reasons(h) : [];
  const shown = known.slice(0, 3);
  const looks = [["link", "line"], ["busy", "dashes"], ["good", "dots"]] as const;
  shown.forEach((why, i) => {
    const [colour, shape] = looks[i]!;
    all.push({ name: waitText(why), colour, shape, zero: "sample",
      of: (p) => p.backlog && (p.backlog[why] ?? 0) });
  });
  if (known.length > shown.length) {
    all.push({ name: "other", colour: "quiet", shape: "line", zero: "sample",
      of: (p) => sum(p, shown) });
  }
  return all;
}
