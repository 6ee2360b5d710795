import { type Signal, signal } from "@preact/signals";
import { refused, type Schemas } from "../api.ts";
import { Area, Check, Field, Refusal, Select } from "../parts/field.tsx";
import { Several } from "../parts/several.tsx";

type Endpoint = Schemas["Endpoint"];
type Kind = Schemas["EndpointAuth"]["kind"];
type Form = ReturnType<typeof newOutbound>;

/** The login stays as it is. */
const unchanged = "unchanged";
const kinds: Kind[] = ["none", "bearer", "basic", "oauth2"];

const newHeader = (name = "") => ({ name: signal(name), value: signal("") });

/**
 * What is typed of the headers, the login and the certificates of deliveries. Headers and
 * certificates that an endpoint has stay, unless they are to be set.
 */
export const newOutbound = () => ({
  setHeaders: signal(true), headers: signal<ReturnType<typeof newHeader>[]>([]),
  kind: signal<Kind | typeof unchanged>("none"),
  token: signal(""), username: signal(""), password: signal(""), tokenURL: signal(""),
  clientID: signal(""), clientSecret: signal(""), scopes: signal(""),
  setTLS: signal(true), ca: signal(""), certificate: signal(""), key: signal(""),
});

/** Has the form show what an endpoint has, without its secrets. */
export function fillOutbound(f: Form, { headers, auth, tls }: Endpoint): void {
  f.setHeaders.value = !headers;
  f.headers.value = Object.keys(headers ?? {}).map((name) => newHeader(name));
  f.kind.value = auth ? unchanged : "none";
  f.username.value = auth?.username ?? "";
  f.tokenURL.value = auth?.token_url ?? "";
  f.clientID.value = auth?.client_id ?? "";
  f.scopes.value = auth?.scopes?.join(" ") ?? "";
  f.token.value = f.password.value = f.clientSecret.value = f.key.value = "";
  f.setTLS.value = !tls;
  f.ca.value = tls?.ca ?? "";
  f.certificate.value = tls?.certificate ?? "";
}

/** Returns what is to be set. An endpoint's own that is not in it stays as it is. */
export function outboundOf(f: Form, e?: Endpoint) {
  const headers = headersOf(f), auth = authOf(f), tls = tlsOf(f);
  const some = (o: object) => Object.keys(o).length > 0;
  return {
    ...(f.setHeaders.value && (e?.headers || some(headers)) && { headers }),
    ...(auth && (e?.auth || auth.kind !== "none") && { auth }),
    ...(f.setTLS.value && (e?.tls || some(tls)) && { tls }),
  };
}

function headersOf(f: Form): Record<string, string> {
  const out: Record<string, string> = {};
  for (const { name: typed, value } of f.headers.value) {
    const name = typed.value.trim();
    if (Object.hasOwn(out, name)) throw refused(`headers.${name}`, "is given twice");
    out[name] = value.value;
  }
  return out;
}

function authOf(f: Form): Schemas["EndpointAuth"] | undefined {
  switch (f.kind.value) {
    case unchanged:
      return undefined;
    case "none":
      return { kind: "none" };
    case "bearer":
      return { kind: "bearer", token: f.token.value };
    case "basic":
      return { kind: "basic", username: f.username.value, password: f.password.value };
    case "oauth2":
      return {
        kind: "oauth2", token_url: f.tokenURL.value.trim(), client_id: f.clientID.value.trim(),
        client_secret: f.clientSecret.value,
        scopes: f.scopes.value.split(/\s+/).filter(Boolean),
      };
  }
}

function tlsOf(f: Form): Schemas["EndpointTLS"] {
  return {
    ...(f.ca.value && { ca: f.ca.value }),
    ...(f.certificate.value && { certificate: f.certificate.value }),
    ...(f.key.value && { key: f.key.value }),
  };
}

interface FieldsProps {
  form: Form;
  /** What is changed; undefined: a new endpoint is made. */
  endpoint: Endpoint | undefined;
}

/** The fields of the headers, the login and the certificates. */
export function OutboundFields({ form: f, endpoint: e }: FieldsProps) {
  return (
    <>
      <p class="quiet">
        Values of headers, tokens, passwords, client secrets and keys are never shown again.
      </p>
      {e?.headers && (
        <Check label={`Replace the headers ${Object.keys(e.headers).join(", ")}`}
          value={f.setHeaders} />
      )}
      {f.setHeaders.value && <Headers headers={f.headers} />}
      <Login form={f} present={!!e?.auth} />
      {e?.tls && <Check label="Replace the certificates" value={f.setTLS} />}
      {f.setTLS.value && <Certificates form={f} />}
    </>
  );
}

function Headers({ headers }: { headers: Signal<ReturnType<typeof newHeader>[]> }) {
  return (
    <Several title="Headers of deliveries" one="header" name="headers" all={headers}
      make={newHeader} fields={({ name, value }) => (
        <>
          <Field label="Header" placeholder="X-Api-Key" value={name} />
          <Field label="Its value" name={`headers.${name.value.trim()}`} type="secret"
            value={value} />
        </>
      )} />
  );
}

function Login({ form: f, present }: { form: Form; present: boolean }) {
  const kind = f.kind.value;
  return (
    <fieldset>
      <legend>Login of deliveries</legend>
      <div class="columns">
        <Select label="Login" name="auth.kind" value={kind}
          options={present ? [unchanged, ...kinds] : kinds}
          change={(to) => (f.kind.value = to as Kind)} />
        {kind === "bearer" && (
          <Field label="Token" name="auth.token" type="secret" value={f.token} />
        )}
        {kind === "basic" && (
          <>
            <Field label="User name" name="auth.username" value={f.username} />
            <Field label="Password" name="auth.password" type="secret" value={f.password} />
          </>
        )}
        {kind === "oauth2" && (
          <>
            <Field label="URL that gives tokens" name="auth.token_url"
              placeholder="https://login.example.com/token" value={f.tokenURL} />
            <Field label="Client id" name="auth.client_id" value={f.clientID} />
            <Field label="Client secret" name="auth.client_secret" type="secret"
              value={f.clientSecret} />
            <Field label="Scopes, with spaces between" name="auth.scopes" value={f.scopes} />
          </>
        )}
      </div>
    </fieldset>
  );
}

const pem = "-----BEGIN";

function Certificates({ form: f }: { form: Form }) {
  return (
    <fieldset>
      <legend>Certificates, for https only</legend>
      <Area label="Authorities that may have signed the endpoint's, instead of the system's"
        name="tls.ca" rows={3} placeholder={pem} value={f.ca} />
      <Area label="Client certificate, with its chain" name="tls.certificate" rows={3}
        placeholder={pem} value={f.certificate} />
      <Area label="Private key of the client certificate" name="tls.key" rows={3}
        placeholder={pem} value={f.key} />
      <Refusal name="tls" />
    </fieldset>
  );
}
