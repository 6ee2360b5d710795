import type { ComponentChildren } from "preact";
import { useLocation } from "preact-iso";
import { answer, api, named } from "../api.ts";
import { Action } from "../parts/action.tsx";
import { Copy } from "../parts/copy.tsx";
import { Manual } from "../parts/manual.tsx";
import { fileOf, type Template, templates } from "./templates.ts";

/** What a tenant without task types can begin with. */
export function Start() {
  return (
    <section>
      <h2>There are no task types yet</h2>
      <p>
        A task type says through which stages its tasks pass. Begin with one of these, or{" "}
        <a href="/console/types">write your own</a>.
      </p>
      <div class="templates">
        {templates.map((t) => <Card key={t.name} template={t} />)}
      </div>
      <p>
        Read on: <Manual page="workers.md" text="workers" />,{" "}
        <Manual page="stages.md" text="stages" />,{" "}
        <Manual page="claims.md" text="claims" />, <a href="/docs">the API</a>.
      </p>
    </section>
  );
}

function Card({ template: t }: { template: Template }) {
  const file = fileOf(t);
  const submit = `asyncflow tasks submit ${t.name} '${t.context}'`;
  return (
    <section class="panel">
      <h3>{t.title}</h3>
      <p>{t.about}</p>
      <Command name={`the file of ${t.name}`} text={file}
        before={<>As <code>asyncflow.yaml</code>:</>} />
      <Command name={`the command that applies ${t.name}`} before="Apply it:"
        text="asyncflow types apply -f asyncflow.yaml" />
      <Command name={`the command that submits a task of ${t.name}`} before="Submit a task:"
        text={submit} />
      <Create template={t} />
    </section>
  );
}

interface CommandProps {
  name: string;
  text: string;
  before: ComponentChildren;
}

function Command({ name, text, before }: CommandProps) {
  return (
    <>
      <p>{before} <Copy text={text} of={name} /></p>
      <pre class="command">{text}</pre>
    </>
  );
}

function Create({ template: t }: { template: Template }) {
  const { route } = useLocation();
  const run = async () => {
    await named("name", "is in use", answer(api.PUT("/v1/task-types/{type}", {
      params: { path: { type: t.name }, header: { "If-None-Match": "*" } },
      body: { stages: t.stages },
    })));
    route(`/console/types/${t.name}`);
    return `${t.name} is created`;
  };
  return <Action label={`Create ${t.name}`} scope="manage" run={run} />;
}
