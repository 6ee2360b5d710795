import type { Loaded } from "../load.ts";

/** What stands in place of something that loads; without of, it stands there always. */
export function Skeleton({ of }: { of?: Pick<Loaded<unknown>, "data" | "error"> }) {
  if (of && (of.data !== undefined || of.error)) return null;
  return (
    <div class="skeleton" role="status">
      <span class="hidden">Loading</span>
      <div /><div /><div />
    </div>
  );
}
