import type { Schemas } from "../api.ts";
import { duration } from "../format.ts";
import { pauses } from "./retry.ts";

type Policy = Schemas["RetryPolicy"];

/** How failed attempts are repeated: a curve for each policy of the stages. */
export function Retries({ stages }: { stages: Schemas["Stage"][] }) {
  const byPolicy = new Map<string, string[]>();
  for (const s of stages) {
    const key = JSON.stringify([s.retry?.max_attempts, s.retry?.interval]);
    byPolicy.set(key, [...byPolicy.get(key) ?? [], s.name]);
  }
  return (
    <section>
      <h2>Retries</h2>
      {[...byPolicy].map(([key, names]) => {
        const policy = stages.find((s) => s.name === names[0])?.retry ?? {};
        const title = byPolicy.size > 1 ? names.join(", ") : "";
        return <Curve key={key} title={title} policy={policy} />;
      })}
    </section>
  );
}

function Curve({ title, policy }: { title: string; policy: Policy }) {
  const all = pauses(policy);
  return (
    <figure class="curve">
      {all.length > 0 && <Bars of={title} seconds={all} />}
      <figcaption>
        {title && <><strong>{title}</strong>: </>}
        <InWords policy={policy} />
      </figcaption>
    </figure>
  );
}

/** A retry policy in words. */
export function InWords({ policy }: { policy: Policy }) {
  const { max_attempts: most = 20, interval = 3600 } = policy;
  const all = pauses(policy);
  const sum = all.reduce((a, b) => a + b, 0);
  const own = typeof interval === "string" && interval !== "poly";
  if (most === 1) return <>One attempt, no retries.</>;
  return (
    <>
      At most {most} attempts.{" "}
      {own
        ? <>The pause in seconds is <code>{interval}</code>.</>
        : <>
            Pauses of {all.slice(0, 4).map(text).join(", ")}
            {all.length > 4 && ` … ${text(all[all.length - 1] ?? 0)}`}
            {interval === "poly" ? ", with jitter; about " : "; "}
            {text(sum)} in all.
          </>}
    </>
  );
}

const text = (seconds: number) => duration(seconds * 1000);

const height = 80, step = 16;

/** A bar for each pause. Their heights grow with the logarithm. */
function Bars({ of, seconds }: { of: string; seconds: number[] }) {
  const top = Math.log1p(Math.max(...seconds, 1));
  const width = seconds.length * step;
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={`Pauses ${of}`}>
      <svg class="pauses" viewBox={`0 0 ${width} ${height + 14}`} width={width} height={height + 14}
        role="img" aria-label="The pause after each attempt, on a logarithmic scale">
        {seconds.map((s, i) => {
          const tall = Math.max(1, (Math.log1p(s) / top) * height);
          return (
            <g key={i}>
              <title>{`after attempt ${i + 1}: ${text(s)}`}</title>
              <rect x={i * step + 2} y={height - tall} width={step - 4} height={tall} />
              {(i === 0 || (i + 1) % 5 === 0) && (
                <text x={i * step + step / 2} y={height + 12} text-anchor="middle">{i + 1}</text>
              )}
            </g>
          );
        })}
      </svg>
    </div>
  );
}
