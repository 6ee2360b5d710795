import type { Schemas } from "../api.ts";
import { Copy } from "../parts/copy.tsx";
import { Table } from "../parts/rows.tsx";
import { Time } from "../parts/time.tsx";

/** The secrets that sign deliveries to an endpoint. Their texts are never shown. */
export function Secrets({ endpoint: e }: { endpoint: Schemas["Endpoint"] }) {
  return (
    <section>
      <h2>Secrets</h2>
      {e.old_secret_signs_until && (
        <p>
          Deliveries are also signed with older secrets. The last of them
          ends <Time at={e.old_secret_signs_until} />.
        </p>
      )}
      <Table label="Secrets" columns={["Secret", "Kind", "Created", "Signs until"]}>
        {e.secrets.map((s) => (
          <tr key={s.id}>
            <th scope="row"><code>{s.id}</code></th>
            <td>
              {s.kind} {s.public_key && <Copy text={s.public_key} label="Copy the public key" />}
            </td>
            <td><Time at={s.created_at} /></td>
            <td>{s.expires_at ? <Time at={s.expires_at} /> : "–"}</td>
          </tr>
        ))}
      </Table>
    </section>
  );
}
