import type { Schemas } from "../api.ts";
import { now } from "../clock.ts";
import { duration, words } from "../format.ts";
import type { Row } from "./attempts.tsx";

const most = 50; // attempts
const ticks = [0, 1, 2, 3, 4]; // quarters of the time
const tall = 10; // of an attempt

/** A bar of the timeline, in ms since 1970. */
interface Bar {
  key: string;
  due: number; // since when it waited
  from: number;
  to: number;
  kind: string;
  title: string;
}

interface TimelineProps {
  task: Schemas["Task"];
  rows: Row[];
}

/** When the attempts of a task waited and ran, from the submit on, with the time below. */
export function Timeline({ task: t, rows }: TimelineProps) {
  const ended = rows.slice(-most).map(barOf);
  const all = t.run ? [...ended, runOf(t.run, t)] : ended;
  if (all.length === 0) return null;
  const begin = Date.parse(t.created_at);
  const end = Math.max(...all.map((b) => b.to), begin + 1);
  const place = (at: number) => (Math.max(at - begin, 0) / (end - begin)) * 1000;
  const kinds = [...new Set(all.map((b) => b.kind))];
  return (
    <figure class="chart timeline">
      <svg viewBox={`0 0 1000 ${all.length * tall}`} preserveAspectRatio="none" role="img"
        height={Math.max(all.length * tall, 20)}
        aria-label={`When each attempt ran, over ${duration(end - begin)}`}>
        {ticks.map((q) => (
          <line key={q} x1={q * 250} x2={q * 250} y1="0" y2={all.length * tall} />
        ))}
        {all.map((b, i) => (
          <g key={b.key}>
            <title>{b.title}</title>
            <rect class="due" x={place(b.due)} y={i * tall + 3} height={tall - 6}
              width={Math.max(place(b.from) - place(b.due), 0)} />
            <rect class={b.kind} x={Math.min(place(b.from), 996)} y={i * tall + 1}
              height={tall - 2} width={Math.max(place(b.to) - place(b.from), 4)} />
          </g>
        ))}
      </svg>
      <figcaption class="quiet">
        <div class="axis">
          {ticks.map((q) => (
            <span key={q}>{q ? duration(((end - begin) * q) / 4) : "submitted"}</span>
          ))}
        </div>
        <div class="legend">
          {kinds.map((kind) => (
            <span key={kind}><span class={`key ${kind}`} /> {words(kind)}</span>
          ))}
          <span><span class="key due" /> was due</span>
          <span>{duration(end - begin)} in all</span>
        </div>
      </figcaption>
    </figure>
  );
}

/** Returns the bar of an attempt that has ended. */
function barOf(a: Row): Bar {
  const to = Date.parse(a.at);
  const from = to - (a.duration_ms ?? 0);
  const took = a.duration_ms === undefined ? "" : `, took ${duration(a.duration_ms)}`;
  return { key: String(a.seq), due: from - (a.wait_ms ?? 0), from, to, kind: a.outcome,
    title: `${a.stage}, attempt ${a.attempt}: ${words(a.outcome)}${took}` };
}

/** Returns the bar of the attempt that runs now. */
function runOf(run: Schemas["TaskRun"], t: Schemas["Task"]): Bar {
  const from = Date.parse(run.since);
  const to = Math.max(now.value, from);
  return { key: "run", due: from - (run.wait_ms ?? 0), from, to, kind: "running",
    title: `${t.stage}, attempt ${t.attempt}: runs for ${duration(to - from)}` };
}
