import { alertText } from "../alerts/rules.ts";
import { Subject } from "../alerts/subject.tsx";
import { answer, api, type Schemas } from "../api.ts";
import { count } from "../format.ts";
import { useLoad } from "../load.ts";
import { Manual } from "../parts/manual.tsx";
import { Problem } from "../parts/problem.tsx";
import { For } from "../parts/time.tsx";
import { may } from "../session.ts";
import { waitText } from "../task/why.tsx";

type Episode = Schemas["AlertEpisode"];

const pause = 20_000; // between two loads, in ms
const most = 5; // lines

/** The alerts that are firing: a line for each of the oldest. */
export function Alerts() {
  const load = useLoad((signal) => answer(api.GET("/v1/alerts/firing", { signal })), [], pause);
  const { enabled, data = [] } = load.data ?? {};
  const oldest = data.toSorted((a, b) => Date.parse(a.since) - Date.parse(b.since));
  const more = data.length - most;
  return (
    <>
      <Problem error={load.error} retry={load.reload} />
      {load.data && data.length === 0 && <p>{enabled ? "No alert is firing." : <Off />}</p>}
      {data.length > 0 && (
        <section>
          <h2>Alerts now</h2>
          <ul class="lines">
            {oldest.slice(0, most).map((e) => <li key={e.id}><Line episode={e} /></li>)}
          </ul>
          {more > 0 && <p><More n={more} /></p>}
        </section>
      )}
    </>
  );
}

function Off() {
  return may("manage") ? <a href="/console/alerts">Alerts are off.</a> : <>Alerts are off.</>;
}

function More({ n }: { n: number }) {
  const text = `and ${count(n)} more`;
  return may("manage") ? <a href="/console/alerts">{text}</a> : <>{text}</>;
}

/** What an alert is about, where, since when, and what to do. */
function Line({ episode: e }: { episode: Episode }) {
  return (
    <>
      <strong class="bad">{alertText(e.alert)}</strong> <Subject episode={e} />
      {e.waits_for && <> {waitText(e.waits_for)}</>},<For since={e.since} />.
      {" "}<Manual page={`alerts.md#${e.alert}`} text="What to do"
        label={`What to do about ${e.alert} of ${e.subject}`} />
    </>
  );
}
