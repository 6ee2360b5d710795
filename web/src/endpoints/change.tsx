import { useMemo, useRef } from "preact/hooks";
import { answer, api, type Schemas } from "../api.ts";
import { Action } from "../parts/action.tsx";
import { fillSettings, newSettings, patchOf, SettingsFields } from "./settings.tsx";

interface Props {
  endpoint: Schemas["Endpoint"];
  etag: string | undefined;
  changed: () => Promise<void>;
}

/** Changes the settings of an endpoint. */
export function Change({ endpoint: e, etag, changed }: Props) {
  const f = useMemo(newSettings, []);
  const opened = useRef(etag);
  const begin = () => {
    opened.current = etag;
    fillSettings(f, e);
  };
  const run = async () => {
    await answer(api.PATCH("/v1/endpoints/{id}", {
      params: { path: { id: e.id }, header: { "If-Match": opened.current } },
      body: patchOf(f, e),
    }));
    await changed();
    return "The endpoint is changed";
  };
  return <Action label="Change" scope="manage" begin={begin} run={run}
    ask={<SettingsFields form={f} endpoint={e} />} />;
}
