import { useMemo } from "preact/hooks";
import { answer, api, type Schemas } from "../api.ts";
import { Action } from "../parts/action.tsx";
import { fillSettings, newSettings, patchOf, SettingsFields } from "./settings.tsx";

interface Props {
  endpoint: Schemas["Endpoint"];
  changed: () => void;
}

/** Changes the settings of an endpoint. */
export function Change({ endpoint: e, changed }: Props) {
  const f = useMemo(newSettings, []);
  const run = async () => {
    await answer(api.PATCH("/v1/endpoints/{id}",
      { params: { path: { id: e.id } }, body: patchOf(f, e) }));
    changed();
    return "The endpoint is changed";
  };
  return <Action label="Change" scope="manage" begin={() => fillSettings(f, e)} run={run}
    ask={<SettingsFields form={f} endpoint={e} />} />;
}
