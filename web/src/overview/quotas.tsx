import type { Schemas } from "../api.ts";
import { amount, words } from "../format.ts";

/** The quotas that have a limit, and how much of each is in use. */
export function Quotas({ quotas }: { quotas: Schemas["QuotaUsage"][] }) {
  const limited = quotas.filter((q) => q.limit !== undefined && q.used !== undefined);
  if (limited.length === 0) return null;
  return (
    <section>
      <h2>Quotas</h2>
      <dl class="facts">
        {limited.map(({ name, limit = 0, used = 0 }) => (
          <div key={name}>
            <dt>{words(name)}</dt>
            <dd>
              <meter max={limit} value={used} high={limit * 0.9} aria-label={words(name)} />
              {" "}{amount(name, used)} of {amount(name, limit)}
            </dd>
          </div>
        ))}
      </dl>
    </section>
  );
}
