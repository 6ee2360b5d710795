import type { CallError } from "../api.ts";

/** What failed and why. A single fault is listed only if the message doesn't have it. */
export function Problem({ error, retry }: { error: CallError | undefined; retry?: () => void }) {
  if (!error) return null;
  const { code, errors = [], request_id } = error.problem;
  const listed = errors.length > 1 || errors.some((e) => !error.message.includes(e.message));
  return (
    <div role="alert" class="problem">
      <strong>{error.message}</strong>
      {listed && (
        <ul>{errors.map((e) => <li key={e.field}><code>{e.field}</code> {e.message}</li>)}</ul>
      )}
      {(code || request_id) && (
        <div class="quiet">
          {code} {error.status || ""} {request_id && <>request <code>{request_id}</code></>}
        </div>
      )}
      {retry && <button type="button" onClick={retry}>Try again</button>}
    </div>
  );
}
