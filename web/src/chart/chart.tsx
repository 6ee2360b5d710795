import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { exactTime } from "./time.ts";
import { Table } from "../parts/rows.tsx";
import { letterOf, type Mark } from "./marks.tsx";
import type { Plot } from "./plot.ts";
import { type Columns, columns, gaps, type History, type Series, type Span, stepOf }
  from "./series.ts";

interface ChartProps {
  title: string;
  history: History | undefined; // undefined: it is loaded
  series: Series[];
  /** Returns a number of the series as text. */
  text: (n: number) => string;
  zoom: (span: Span) => void;
  reset: () => void;
  children?: ComponentChildren; // below the title
}

/** Numbers of a history over time, as lines and as a table. */
export function Chart({ title, history, series, text, zoom, reset, children }: ChartProps) {
  const row = useSignal<number | null>(null);
  const all = useMemo(() => history && columns(history, series), [history]);
  return (
    <figure class="plot" aria-label={title}>
      <figcaption><h3>{title}</h3>{children}</figcaption>
      <Drawing {...{ title, history, series, all, text, zoom, reset }}
        hover={(i) => (row.value = i)} />
      <Legend series={series} all={all} row={row.value} text={text} />
      {all && <AsTable title={title} series={series} all={all} text={text} />}
    </figure>
  );
}

const file = "/console/assets/plot.js";

/** Loads what draws charts, which is a bundle of its own: it is as large as a third of the rest. */
const library = (): Promise<typeof import("./plot.ts")> => import(file);

interface DrawingProps extends Omit<ChartProps, "children"> {
  all: Columns | undefined;
  hover: (row: number | null) => void;
}

function Drawing(props: DrawingProps) {
  const { title, history, series, all } = props;
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<Plot | undefined>(undefined);
  const latest = useRef(props);
  latest.current = props;
  const failed = useSignal(false);

  useEffect(() => {
    if (!history || !all || !box.current) return;
    const shown = { columns: all, step: stepOf(history), gaps: gaps(history), text: props.text,
      whole: series.some((s) => s.zero),
      shapes: series.map((s) => s.shape), marks: history.marks.map(plotted) };
    if (plot.current) return plot.current.show(shown);
    let over = false;
    library().then(({ plot: draw }) => {
      if (over || !box.current) return;
      const user = {
        colours: () => coloursIn(box.current),
        hover: (i: number | null) => latest.current.hover(i),
        zoom: (s: Span) => latest.current.zoom(s),
        reset: () => latest.current.reset(),
      };
      plot.current = draw(box.current, shown, user);
    }, () => (failed.value = true));
    return () => { over = true };
  }, [history]);
  useEffect(() => () => {
    plot.current?.remove();
    plot.current = undefined;
  }, []);
  useEffect(() => {
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const redraw = () => plot.current?.redraw();
    dark.addEventListener("change", redraw);
    return () => dark.removeEventListener("change", redraw);
  }, []);
  return (
    <>
      {failed.value && (
        <p role="alert" class="problem">
          The chart can't be drawn: a file of the console didn't come. Load the page again.
        </p>
      )}
      <div class="drawing" ref={box} role="img" aria-label={`${title}: a chart`}
        aria-busy={!history}>
        <span class="colours" aria-hidden="true">
          {[...series.map((s) => s.colour), "of-line", "of-text", "of-mark"].map((c, i) =>
            <i key={i} class={c} />)}
        </span>
      </div>
    </>
  );
}

/** Returns the colours of a drawing, in which the style sheet and the scheme say what they are. */
const coloursIn = (box: HTMLElement | null): string[] =>
  [...box?.querySelectorAll(".colours > *") ?? []].map((e) => getComputedStyle(e).color);

const plotted = (m: Mark) => ({ at: Date.parse(m.at) / 1000, letter: letterOf(m.kind),
  until: m.kind === "deploy" ? undefined : (m.until ? Date.parse(m.until) / 1000 : Infinity) });

interface LegendProps {
  series: Series[];
  all: Columns | undefined;
  row: number | null; // under the pointer
  text: (n: number) => string;
}

/** The names of the series, and their numbers under the pointer or else the last ones. */
function Legend({ series, all, row, text }: LegendProps) {
  const [times = [], ...rows] = all ?? [];
  const at = row === null ? undefined : times[row];
  return (
    <ul class="legend">
      <li class="quiet">{at === undefined ? "last" : exactTime(at)}</li>
      {series.map((s, i) => {
        const of = rows[i] ?? [];
        const n = row === null ? of.findLast((v) => v !== null) : of[row];
        return (
          <li key={s.name}>
            <Sample series={s} /> {s.name} <b>{typeof n === "number" ? text(n) : "–"}</b>
          </li>
        );
      })}
    </ul>
  );
}

/** A piece of a series as it is drawn. */
function Sample({ series: { colour, shape } }: { series: Series }) {
  return (
    <svg class={`sample ${colour} in-${shape}`} viewBox="0 0 24 12" width="24" height="12"
      aria-hidden="true">
      {shape === "bars"
        ? [2, 9, 16].map((x, i) => <rect key={x} x={x} y={2 + i} width="5" height={10 - i} />)
        : <path d="M0 5h24" />}
      {shape === "area" && <rect class="faint" x="0" y="5" width="24" height="7" />}
    </svg>
  );
}

const most = 1500; // rows of a table

/** The rows with numbers, the newest first. */
function AsTable({ title, series, all: [times, ...rows], text }: {
  title: string; series: Series[]; all: Columns; text: (n: number) => string;
}) {
  const open = useSignal(false);
  const some = [...times.keys()].filter((i) => rows.some((r) => r[i] != null && r[i] !== 0));
  return (
    <details onToggle={(e) => (open.value = e.currentTarget.open)}>
      <summary>As a table</summary>
      {open.value && (
        <Table label={title} columns={["From", ...series.map((s) => ({ n: s.name }))]}>
          {some.toReversed().slice(0, most).map((i) => (
            <tr key={times[i]}>
              <td>{exactTime(times[i] ?? 0)}</td>
              {rows.map((r, j) => {
                const n = r[i];
                return <td key={j} class="n">{typeof n === "number" ? text(n) : "–"}</td>;
              })}
            </tr>
          ))}
        </Table>
      )}
      {open.value && some.length === 0 && <p class="quiet">There is nothing to list.</p>}
    </details>
  );
}
