import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { now } from "../clock.ts";

const most = 60; // values that are kept

/** Keeps the last values of a figure, one each two seconds, and shows them. */
export function Recent(
  { value, show: Show }: { value: number; show: ComponentType<{ values: number[] }> },
) {
  const [values, setValues] = useState<number[]>([]);
  const tick = Math.floor(now.value / 2000);
  useEffect(() => setValues((all) => [...all.slice(1 - most), value]), [tick]);
  return <Show values={values} />;
}

/** A line of values, without axes. */
export function Sparkline({ values }: { values: number[] }) {
  const top = Math.max(...values, 1e-9);
  const points = values.map((v, i) => `${(most - values.length + i) * 2},${23 - (v / top) * 21}`);
  return (
    <svg class="sparkline" viewBox={`0 0 ${most * 2} 24`} width={most * 2} height="24"
      aria-hidden="true">
      <polyline points={points.join(" ")} />
    </svg>
  );
}

const bar = 5; // the width of a bar and the space after it

/** Counts as bars; none without values. Each that isn't 0 is seen. */
export function Bars({ values, bad = false }: { values: number[]; bad?: boolean }) {
  const top = Math.max(...values, 1);
  if (values.length === 0) return null;
  return (
    <svg class={bad ? "bars bad" : "bars"} viewBox={`0 0 ${values.length * bar} 24`}
      width={values.length * bar} height="24" preserveAspectRatio="none" aria-hidden="true">
      <line x1="0" x2={values.length * bar} y1="23.5" y2="23.5" />
      {values.map((v, i) => {
        const height = v && Math.max(3, (v / top) * 23);
        return <rect key={i} x={i * bar} y={24 - height} width={bar - 1} height={height} />;
      })}
    </svg>
  );
}
