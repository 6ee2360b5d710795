import { answer, api } from "../api.ts";
import { indented, members } from "../json.ts";
import { useLoad } from "../load.ts";
import { Problem } from "../parts/problem.tsx";
import { moment } from "../parts/time.tsx";

/** Returns the document of a version of a type. */
export async function versionOf(type: string, version: number): Promise<string> {
  const text = await answer(api.GET("/v1/task-types/{type}/versions/{version}",
    { params: { path: { type, version } }, parseAs: "text" }));
  return indented(members(text as unknown as string).spec ?? "{}");
}

interface VersionsProps {
  type: string;
  busy: boolean; // no other one can be chosen now
  chosen: (version: number) => void;
}

/** A choice among the versions of a type that are kept, if there are several. */
export function Versions({ type, busy, chosen }: VersionsProps) {
  const load = useLoad((signal) => answer(api.GET("/v1/task-types/{type}/versions",
    { signal, params: { path: { type } } })), [type]);
  const all = load.data?.data ?? [];
  return (
    <>
      <Problem error={load.error} retry={load.reload} />
      {all.length > 1 && (
        <label>
          Begin with version
          <select disabled={busy} onChange={(e) => chosen(Number(e.currentTarget.value))}>
            {all.map((v) => (
              <option key={v.version} value={v.version}>
                {v.version}, {v.current ? "the present one" : `of ${moment(v.applied_at)}`}
              </option>
            ))}
          </select>
        </label>
      )}
    </>
  );
}
