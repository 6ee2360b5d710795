import { useSignal } from "@preact/signals";
import { answer, api, type Schemas } from "../api.ts";
import { Action } from "../parts/action.tsx";
import { Field } from "../parts/field.tsx";
import { NewSecret } from "../parts/secret.tsx";

interface Props {
  endpoint: Schemas["Endpoint"];
  changed: () => Promise<void>;
}

/** Makes a new secret, and shows it once. */
export function Rotate({ endpoint: e, changed }: Props) {
  const overlap = useSignal("24h");
  const kind = useSignal<Schemas["SecretKind"]>("hmac");
  const made = useSignal<Schemas["Endpoint"] | undefined>(undefined);
  const run = async () => {
    made.value = await answer(api.POST("/v1/endpoints/{id}/rotate-secret", {
      params: { path: { id: e.id } },
      body: { overlap: overlap.value, kind: kind.value },
    }));
    await changed();
    return "The endpoint has a new secret";
  };
  const ask = (
    <>
      <p>Deliveries are signed with the older secrets too, until the overlap ends.</p>
      <Field label="Overlap, such as 24h; at most 720h" required value={overlap} />
      <label>
        Kind
        <select value={kind.value}
          onChange={(c) => (kind.value = c.currentTarget.value as Schemas["SecretKind"])}>
          <option value="hmac">hmac: a secret that both sides have</option>
          <option value="ed25519">ed25519: the worker has the public key</option>
        </select>
      </label>
    </>
  );
  const secret = made.value?.secret ?? made.value?.secrets[0]?.public_key;
  return (
    <>
      <Action label="Rotate the secret" scope="manage" ask={ask} run={run}
        begin={() => (kind.value = e.secrets[0]?.kind ?? "hmac")} />
      {secret && (
        <NewSecret secret={secret} kind={made.value?.secret ? "secret" : "public key"}
          close={() => (made.value = undefined)} />
      )}
    </>
  );
}
