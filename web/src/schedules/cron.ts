/** The times that a cron expression names: the values of its fields, each in their order. */
export interface Cron {
  minutes: number[];
  hours: number[];
  days: number[];
  months: number[];
  /** From 0, Sunday, on. */
  weekdays: number[];
  /** Both kinds of days are limited: a day of either kind counts. */
  either: boolean;
}

const macros: Record<string, string> = {
  "@hourly": "0 * * * *",
  "@daily": "0 0 * * *",
  "@midnight": "0 0 * * *",
  "@weekly": "0 0 * * 0",
  "@monthly": "0 0 1 * *",
  "@yearly": "0 0 1 1 *",
  "@annually": "0 0 1 1 *",
};

const monthNames = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV",
  "DEC"];
const weekdayNames = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

/** Returns what a cron expression names; undefined if it isn't one. */
export function parseCron(cron: string): Cron | undefined {
  const fields = (macros[cron] ?? cron).trim().split(/\s+/);
  const [minute = "", hour = "", day = "", month = "", weekday = ""] = fields;
  const all = {
    minutes: valuesOf(minute, 0, 59), hours: valuesOf(hour, 0, 23), days: valuesOf(day, 1, 31),
    months: valuesOf(month, 1, 12, monthNames), weekdays: valuesOf(weekday, 0, 6, weekdayNames),
  };
  if (fields.length !== 5 || Object.values(all).some((v) => v.length === 0)) return undefined;
  return { ...all, either: !isAny(day) && !isAny(weekday) };
}

/** Reports whether a field has a star. It counts other than a list of all values. */
const isAny = (field: string) => field.split(",").some((part) => /^[*?](\/0*1)?$/.test(part));

const range = /^(?:([*?])|(\w+)(?:-(\w+))?)(?:\/(\d+))?$/;

/** Returns the values that a field names, such as *, MON-FRI, 5/15 or 1,15; [] if it is wrong. */
function valuesOf(field: string, least: number, most: number, names: string[] = []): number[] {
  const found = new Set<number>();
  const numberOf = (text: string) => {
    const name = names.indexOf(text.toUpperCase());
    return name < 0 ? Number(text) : name + least;
  };
  for (const part of field.split(",")) {
    const [matches, any, first = "", last, step] = range.exec(part) ?? [];
    const from = any ? least : numberOf(first);
    const to = any || (step && !last) ? most : numberOf(last ?? first);
    const by = Number(step ?? 1);
    if (!matches || !(from >= least && from <= to && to <= most && by > 0)) return [];
    for (let value = from; value <= to; value += by) found.add(value);
  }
  return [...found].sort((a, b) => a - b);
}
