import type { ComponentChildren } from "preact";
import type { Schemas } from "../api.ts";

type Stage = Schemas["Stage"];

/** Reports whether any stage says what comes next. */
export const branches = (stages: Stage[]): boolean =>
  stages.some((s) => s.next?.length || undo(s));

/** Returns the stage that follows when a stage has failed, or its signal didn't come. */
const undo = (s: Stage) => s.on_failure ?? s.wait?.on_timeout;

/** Returns the indexes of what may follow a stage. The number of stages stands for the end. */
export function nexts(stages: Stage[], at: number): number[] {
  const names = stages[at]?.next ?? [];
  if (names.length === 0) return [at + 1];
  const indexes = names.map((name) =>
    name === "finish" ? stages.length : stages.findIndex((s) => s.name === name));
  return indexes.sort((a, b) => a - b);
}

/** Returns the name of a stage by its index. */
export const nameOf = (stages: Stage[], at: number): string => stages[at]?.name ?? "the end";

interface WaysProps {
  stages: Stage[];
  /** Reports whether a task took the way from a stage to another. */
  taken?: (from: number, to: number) => boolean;
  /** What a row says of its stage, beside the ways that lead on. */
  row?: (stage: Stage, at: number) => ComponentChildren;
  /** The stage in which a task is. */
  current?: number;
}

/** The stages below each other, with a line for each way from one to another. */
export function Ways({ stages, taken = () => false, row, current }: WaysProps) {
  return (
    <div class="ways">
      <Lines stages={stages} taken={taken} />
      <ol aria-label="Stages">
        {stages.map((s, i) => (
          <li key={s.name} aria-current={i === current ? "step" : undefined}>
            {row ? row(s, i) : <strong>{s.name}</strong>}
            <span class="quiet">
              {" → "}
              {nexts(stages, i).map((to) => nameOf(stages, to) + mark(taken(i, to))).join(", ")}
              {s.on_failure && `; if it fails → ${s.on_failure.next}`}
              {s.wait && `; waits for ${s.wait.signal}`}
              {s.wait?.on_timeout && `; without it → ${s.wait.on_timeout.next}`}
            </span>
          </li>
        ))}
        <li class="quiet">the end</li>
      </ol>
    </div>
  );
}

const mark = (taken: boolean): string => taken ? " (taken)" : "";

const height = 36; // of a row, in px: also that of .ways li

/** A way from a stage to another. */
interface Way {
  from: number;
  to: number;
  /** Whether it is the way of tasks that have failed in the stage. */
  failed: boolean;
}

function waysOf(stages: Stage[]): Way[] {
  return stages.flatMap((s, from) => {
    const ways = nexts(stages, from).map((to) => ({ from, to, failed: false }));
    const to = stages.findIndex((other) => other.name === undo(s)?.next);
    return to < 0 ? ways : [...ways, { from, to, failed: true }];
  });
}

const isBent = ({ from, to, failed }: Way): boolean => failed || to !== from + 1;

/** How far a bent line reaches to the left, in px. */
const reach = ({ from, to, failed }: Way): number =>
  Math.min(28 + 12 * Math.abs(to - from), 120) + (to <= from ? 8 : 0) + (failed ? 16 : 0);

/** The lines beside the list. What they show, the list says. */
function Lines({ stages, taken }: Required<Pick<WaysProps, "stages" | "taken">>) {
  const ways = waysOf(stages);
  const bent = ways.filter(isBent);
  // A curve gets as far as three quarters of the way to its handles.
  const x = 12 + Math.max(0, ...bent.map((w) => reach(w) * 0.75));
  const rows = stages.length + 1;
  return (
    <svg width={x + 12} height={rows * height} aria-hidden="true">
      {ways.map((w) => {
        const { line, head } = draw(w, x);
        const kind = w.failed ? "undo" : taken(w.from, w.to) ? "taken" : undefined;
        return (
          <g key={`${w.from} ${w.to} ${w.failed}`} class={kind}>
            <path d={line} />
            <path class="head" d={head} />
          </g>
        );
      })}
      {Array.from({ length: rows }, (_, i) => <circle key={i} cx={x} cy={middle(i)} r="4" />)}
    </svg>
  );
}

const middle = (row: number): number => (row + 0.5) * height;

/** The line of a way, and its arrowhead: straight down, or bent to the left. */
function draw(w: Way, x: number): { line: string; head: string } {
  if (!isBent(w)) {
    const end = middle(w.to) - 6;
    return { line: `M${x} ${middle(w.from)}V${end - 6}`, head: `M${x} ${end}l-4 -7h8z` };
  }
  const begin = middle(w.from) + 4, end = middle(w.to) - 4; // apart, as there may be a way back
  const left = x - reach(w);
  return {
    line: `M${x - 4} ${begin}C${left} ${begin} ${left} ${end} ${x - 11} ${end}`,
    head: `M${x - 5} ${end}l-7 -4v8z`,
  };
}
