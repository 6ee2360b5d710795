import type { ComponentChildren } from "preact";

/** What a page shows that has nothing to show, and what to do about it. */
export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <h2>{title}</h2>
      <p>{children}</p>
    </div>
  );
}

/** What a page shows of a tenant without task types. */
export function NoTypes() {
  return (
    <Empty title="There are no task types yet">
      <a href="/console">Begin with a template</a>, or describe one in a file, and apply it:{" "}
      <code>asyncflow types apply -f asyncflow.yaml</code>
    </Empty>
  );
}
