import type { Schemas } from "../api.ts";
import { span } from "../format.ts";

const names = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const short = names.map((n) => n.slice(0, 3).toUpperCase());

const macros: Record<string, string> = {
  "@hourly": "0 * * * *",
  "@daily": "0 0 * * *",
  "@midnight": "0 0 * * *",
  "@weekly": "0 0 * * 0",
  "@monthly": "0 0 1 * *",
  "@yearly": "0 0 1 1 *",
  "@annually": "0 0 1 1 *",
};

/** Says when a schedule runs. */
export function when(s: Pick<Schemas["Schedule"], "cron" | "every" | "time_zone">): string {
  if (s.every) return `every ${span(s.every)}`;
  const cron = s.cron ?? "";
  const words = cronWords(cron);
  const zone = s.time_zone ?? "UTC";
  if (words === cron) return `by ${cron}, ${zone} time`;
  return / (at|on|from) /.test(` ${words}`) ? `${words}, ${zone} time` : words;
}

/** Says a cron expression in words if it is a common one; returns it as it is otherwise. */
export function cronWords(cron: string): string {
  const fields = (macros[cron] ?? cron).trim().split(/\s+/);
  const [minute = "", hour = "", day = "", month = "", weekday = ""] = fields;
  if (fields.length !== 5) return cron;
  const time = timeWords(minute, hour);
  const days = dayWords(day, month, weekday);
  if (time === undefined || days === undefined) return cron;
  const often = time.startsWith("every");
  if (!days) return often ? time : `every day ${time}`;
  const on = `${days.includes(" to ") ? "from" : "on"} ${days}`;
  return often ? `${time} ${on}` : `${on} ${time}`;
}

/** Says the minute and the hour; undefined if they aren't common ones. */
function timeWords(minute: string, hour: string): string | undefined {
  const step = /^\*\/(\d+)$/;
  const everyMinutes = step.exec(minute)?.[1], everyHours = step.exec(hour)?.[1];
  if (minute === "*" && hour === "*") return "every minute";
  if (everyMinutes && hour === "*" && 60 % Number(everyMinutes) === 0) {
    return everyMinutes === "1" ? "every minute" : `every ${everyMinutes} minutes`;
  }
  if (!isNumber(minute, 59)) return undefined;
  const past = minute === "0" || minute === "00" ? "" : `, ${Number(minute)} min past the hour`;
  if (hour === "*") return `every hour${past}`;
  if (everyHours && 24 % Number(everyHours) === 0) return `every ${everyHours} hours${past}`;
  const hours = hour.split(",");
  if (!hours.every((h) => isNumber(h, 23))) return undefined;
  return `at ${list(hours.map((h) => `${h.padStart(2, "0")}:${minute.padStart(2, "0")}`))}`;
}

/** Says the days; "" for all of them; undefined if they aren't common ones. */
function dayWords(day: string, month: string, weekday: string): string | undefined {
  const anyDay = day === "*" || day === "?", anyWeekday = weekday === "*" || weekday === "?";
  if (!anyWeekday) return anyDay && month === "*" ? weekdayWords(weekday) : undefined;
  if (anyDay) return month === "*" ? "" : undefined;
  if (!isNumber(day, 31)) return undefined;
  if (month === "*") return `day ${Number(day)} of each month`;
  if (!isNumber(month, 12) || month === "0") return undefined;
  const name = new Date(2000, Number(month) - 1).toLocaleString("en", { month: "long" });
  return `${name} ${Number(day)}`;
}

function weekdayWords(weekday: string): string | undefined {
  const out: string[] = [];
  for (const part of weekday.split(",")) {
    const ends = part.split("-").map(weekdayName);
    if (ends.length > 2 || ends.includes(undefined)) return undefined;
    out.push(ends.join(" to "));
  }
  return list(out);
}

function weekdayName(text: string): string | undefined {
  const at = /^\d$/.test(text) ? Number(text) % 7 : short.indexOf(text.toUpperCase());
  return text === "8" || text === "9" ? undefined : names[at];
}

const isNumber = (text: string, most: number) => /^\d{1,2}$/.test(text) && Number(text) <= most;

/** Joins words: a, b and c. */
function list(words: string[]): string {
  if (words.length < 2) return words.join("");
  return `${words.slice(0, -1).join(", ")} and ${words[words.length - 1]}`;
}
