import type { ComponentChildren } from "preact";
import type { Schemas } from "../api.ts";

type Stage = Schemas["Stage"];

/** Reports whether any stage says what comes next. */
export const branches = (stages: Stage[]): boolean => stages.some((s) => s.next?.length);

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
              {nexts(stages, i).map((to) => nameOf(stages, to) + (taken(i, to) ? " (taken)" : ""))
                .join(", ")}
            </span>
          </li>
        ))}
        <li class="quiet">the end</li>
      </ol>
    </div>
  );
}

const height = 36; // of a row, in px: also that of .ways li

/** How far the line between two stages reaches to the left, in px. */
const reach = (from: number, to: number): number =>
  Math.min(28 + 12 * Math.abs(to - from), 120) + (to <= from ? 8 : 0);

/** The lines beside the list. What they show, the list says. */
function Lines({ stages, taken }: Required<Pick<WaysProps, "stages" | "taken">>) {
  const ways = stages.flatMap((_, from) => nexts(stages, from).map((to) => ({ from, to })));
  const bent = ways.filter(({ from, to }) => to !== from + 1);
  // A curve gets as far as three quarters of the way to its handles.
  const x = 12 + Math.max(0, ...bent.map(({ from, to }) => reach(from, to) * 0.75));
  const rows = stages.length + 1;
  return (
    <svg width={x + 12} height={rows * height} aria-hidden="true">
      {ways.map(({ from, to }) => {
        const { line, head } = way(from, to, x);
        return (
          <g key={`${from} ${to}`} class={taken(from, to) ? "taken" : undefined}>
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

/** The line from a row to another, and its arrowhead: straight down, or bent to the left. */
function way(from: number, to: number, x: number): { line: string; head: string } {
  if (to === from + 1) {
    const end = middle(to) - 6;
    return { line: `M${x} ${middle(from)}V${end - 6}`, head: `M${x} ${end}l-4 -7h8z` };
  }
  const begin = middle(from) + 4, end = middle(to) - 4; // apart, as there may be a way back
  const left = x - reach(from, to);
  return {
    line: `M${x - 4} ${begin}C${left} ${begin} ${left} ${end} ${x - 11} ${end}`,
    head: `M${x - 5} ${end}l-7 -4v8z`,
  };
}
