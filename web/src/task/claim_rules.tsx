import type { Schemas } from "../api.ts";

/** Who may not claim a task, and which labels a claimer needs. */
export function ClaimRules({ task: t }: { task: Schemas["Task"] }) {
  const { exclude = [], labels = {} } = t.claim ?? {};
  return (
    <>
      {exclude.length > 0 && (
        <div><dt>Not for the claimers</dt><dd><bdi>{exclude.join(", ")}</bdi></dd></div>
      )}
      {Object.keys(labels).length > 0 && (
        <div>
          <dt>Only for claimers with</dt>
          <dd>
            {Object.entries(labels).map(([name, value]) => (
              <bdi key={name}><code>{name}={value}</code> </bdi>
            ))}
          </dd>
        </div>
      )}
    </>
  );
}
