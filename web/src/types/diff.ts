/** A line that is in both texts, or only in the one before ("-") or after ("+"). */
export interface Line {
  sign: " " | "-" | "+";
  text: string;
}

/** Returns the lines of two texts with what differs between them. */
export function diff(before: string, after: string): Line[] {
  const a = before.split("\n"), b = after.split("\n");
  const n = a.length, m = b.length;
  // common[i][j] is the number of lines that a from i and b from j have in common.
  const common = Array.from({ length: n + 1 }, () => new Uint32Array(m + 1));
  const at = (i: number, j: number) => common[i]?.[j] ?? 0;
  for (let i = n - 1; i >= 0; i--) {
    for (let j = m - 1; j >= 0; j--) {
      const row = common[i] as Uint32Array;
      row[j] = a[i] === b[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
    }
  }
  const out: Line[] = [];
  let i = 0, j = 0;
  while (i < n || j < m) {
    if (i < n && j < m && a[i] === b[j]) {
      out.push({ sign: " ", text: a[i] as string });
      i++;
      j++;
    } else if (j >= m || (i < n && at(i + 1, j) >= at(i, j + 1))) {
      out.push({ sign: "-", text: a[i++] as string });
    } else {
      out.push({ sign: "+", text: b[j++] as string });
    }
  }
  return out;
}
