import { signal } from "@preact/signals";
import { useLocation } from "preact-iso";
import { useMemo } from "preact/hooks";
import { answer, api, type Schemas } from "../api.ts";
import { useLoad } from "../load.ts";
import { Action } from "../parts/action.tsx";
import { Field, Select } from "../parts/field.tsx";
import { Problem } from "../parts/problem.tsx";
import { NewSecret } from "../parts/secret.tsx";
import { newSettings, SettingsFields, settingsOf } from "./settings.tsx";

type Form = ReturnType<typeof newForm>;

const newForm = () => ({
  type: signal(""), stage: signal(""), settings: newSettings(), secret: signal(""),
  kind: signal<Schemas["SecretKind"]>("hmac"),
  made: signal<Schemas["Endpoint"] | undefined>(undefined),
});

interface Props {
  type: string | undefined;
  stage: string | undefined;
}

/** Registers an endpoint, and shows its secret once. type and stage are chosen at first. */
export function NewEndpoint({ type, stage }: Props) {
  const f = useMemo(newForm, []);
  const { route } = useLocation();
  const begin = () => {
    f.type.value ||= type ?? "";
    f.stage.value ||= stage ?? "";
  };
  const run = async () => {
    const e = await answer(api.POST("/v1/endpoints", { body: documentOf(f) }));
    f.made.value = e;
    return `The endpoint is ${e.verification === "unneeded" ? "registered" : e.verification}`;
  };
  const made = f.made.value;
  const secret = made?.secret ?? made?.secrets[0]?.public_key;
  return (
    <>
      <p class="buttons">
        <Action label="New endpoint" scope="manage" ask={<Fields form={f} />} begin={begin}
          run={run} />
      </p>
      {made && secret && (
        <NewSecret secret={secret} kind={made.secret ? "secret" : "public key"}
          close={() => route(`/console/endpoints/${made.id}`)} />
      )}
    </>
  );
}

function documentOf(f: Form): Schemas["NewEndpoint"] {
  return {
    type: f.type.value,
    stage: f.stage.value,
    ...settingsOf(f.settings),
    ...(f.secret.value ? { secret: f.secret.value.trim() } : { secret_kind: f.kind.value }),
  };
}

function Fields({ form: f }: { form: Form }) {
  const types = useLoad((signal) => answer(api.GET("/v1/task-types", { signal })), []);
  const all = types.data?.data ?? [];
  const stages = all.find((t) => t.name === f.type.value)?.stages ?? [];
  return (
    <>
      <Problem error={types.error} retry={types.reload} />
      <div class="columns">
        <Select label="Type" name="type" required value={f.type.value}
          options={all.map((t) => t.name)}
          change={(to) => {
            f.type.value = to;
            f.stage.value = "";
          }} />
        <Select label="Stage" name="stage" required value={f.stage.value}
          options={stages.map((s) => s.name)} change={(to) => (f.stage.value = to)} />
      </div>
      <SettingsFields form={f.settings} />
      <div class="columns">
        <Select label="Kind of the new secret" name="secret_kind" value={f.kind.value}
          options={["hmac", "ed25519"]}
          change={(to) => (f.kind.value = to as Schemas["SecretKind"])} />
        <Field label="A secret that the worker has already" name="secret" type="secret"
          maxLength={100} placeholder="a new one is made" value={f.secret} />
      </div>
      <p class="quiet">
        It is challenged at once, unless the operator has turned that off. A worker that doesn't
        know the secret yet fails: give it the secret, and verify the endpoint then.
      </p>
    </>
  );
}
