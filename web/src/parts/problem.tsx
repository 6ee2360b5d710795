import type { CallError } from "../api.ts";
import { now } from "../clock.ts";

/** What failed and why. A single fault is listed only if the message doesn't have it. */
export function Problem({ error, retry }: { error: CallError | undefined; retry?: () => void }) {
  if (!error) return null;
  if (error.status === 412) return <Overtaken />;
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
      {error.again !== undefined && <Again at={error.again} />}
      {retry && <button type="button" onClick={retry}>Try again</button>}
    </div>
  );
}

/** Says when the page tries again. A screen reader hears of the failure, not of each second. */
function Again({ at }: { at: number }) {
  const left = Math.ceil((at - now.value) / 1000);
  const text = left > 0 ? `The page tries again in ${left} s.` : "The page tries again now.";
  return <div class="quiet" aria-live="off">{text}</div>;
}

/** Somebody else's change came first. The page in another tab leaves alone what was typed. */
function Overtaken() {
  return (
    <div role="alert" class="problem">
      <strong>Somebody changed this meanwhile, or it has gone on.</strong> Nothing was saved, and
      what you typed is still here.{" "}
      <a href={location.href} target="_blank">Show it as it is now</a>, in a new tab.
    </div>
  );
}
