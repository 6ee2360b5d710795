import { useSignal } from "@preact/signals";
import { answer, api, checkJSON, type Schemas } from "../api.ts";
import { duration, span } from "../format.ts";
import { Action } from "../parts/action.tsx";
import { Dialog } from "../parts/dialog.tsx";
import { Area } from "../parts/field.tsx";
import { Json } from "../parts/json.tsx";
import { Status } from "../parts/status.tsx";

type Result = Schemas["EndpointTestResult"];

/** Sends the endpoint a test delivery, and shows what was sent and what came back. */
export function Test({ endpoint: e }: { endpoint: Schemas["Endpoint"] }) {
  const context = useSignal("{}");
  const result = useSignal<Result | undefined>(undefined);
  const run = async () => {
    const text = context.value;
    checkJSON("context", text);
    // The text goes as it is: a parsed one could have changed numbers.
    result.value = await answer(api.POST("/v1/endpoints/{id}/test", {
      params: { path: { id: e.id } }, body: {}, bodySerializer: () => `{"context":${text}}`,
    }));
    return "The test delivery was sent";
  };
  const ask = (
    <>
      <p>
        One delivery is signed and sent like any other, outside of any task. The worker can tell it
        by its <code>"test": true</code>. It counts neither for the endpoint's health nor for its
        limits.
      </p>
      <Area label="Context" name="context" rows={8} value={context} />
    </>
  );
  return (
    <>
      <Action label="Test" scope="manage" ask={ask} run={run} />
      {result.value && <Outcome result={result.value} close={() => (result.value = undefined)} />}
    </>
  );
}

function Outcome({ result: r, close }: { result: Result; close: () => void }) {
  return (
    <Dialog title="The test delivery" close={close}>
      <dl class="facts">
        <div><dt>Outcome for a task</dt><dd><Status status={r.outcome} /></dd></div>
        <div><dt>Took</dt><dd>{duration(r.duration_ms)}</dd></div>
        {r.retry_after && <div><dt>Asked for a pause of</dt><dd>{span(r.retry_after)}</dd></div>}
      </dl>
      {r.error && <p class="problem">{r.error}</p>}
      <h3>Answer{r.response && `: ${r.response.status}`}</h3>
      {r.response
        ? <Message headers={r.response.headers} body={r.response.body} label="Answer's body" />
        : <p>There was none.</p>}
      {r.response?.truncated && <p class="quiet">It is longer: not all of it is shown.</p>}
      <h3>Request</h3>
      {r.request
        ? (
          <>
            <p><code>{r.request.method} {r.request.url}</code></p>
            <Message headers={r.request.headers} body={r.request.body} label="Request's body" />
          </>
        )
        : <p>It could not be made.</p>}
      <p class="buttons"><button type="button" onClick={close}>Close</button></p>
    </Dialog>
  );
}

interface MessageProps {
  headers: Record<string, string>;
  body: string;
  label: string;
}

function Message({ headers, body, label }: MessageProps) {
  return (
    <>
      <pre>{Object.entries(headers).map(([name, value]) => `${name}: ${value}`).join("\n")}</pre>
      {body ? <Json label={label} text={body} /> : <p class="quiet">It has no body.</p>}
    </>
  );
}
