import type { Schemas } from "../api.ts";
import { span } from "../format.ts";
import { type Cron, parseCron } from "./cron.ts";

/** Says when a schedule runs. */
export function when(s: Pick<Schemas["Schedule"], "cron" | "every" | "time_zone">): string {
  if (s.every) return `every ${span(s.every)}`;
  const cron = s.cron ?? "";
  const words = cronWords(cron);
  const zone = s.time_zone ?? "UTC";
  if (words === cron) return `by ${cron}, ${zone} time`;
  return / (at|on|from|between|in) /.test(` ${words}`) ? `${words}, ${zone} time` : words;
}

/** Says a cron expression in words; returns it as it is if these would be no easier to read. */
export function cronWords(cron: string): string {
  const times = parseCron(cron);
  if (!times) return cron;
  const time = timeWords(times.minutes, times.hours);
  const days = dayWords(times);
  if (time === undefined || days === undefined) return cron;
  if (time.startsWith("every")) return days ? `${time} ${days}` : time;
  if (!days) return `every day ${time}`;
  return days.startsWith("in ") ? `every day ${days} ${time}` : `${days} ${time}`;
}

/** The most times, days or months that are listed. */
const mostListed = 6;

/** Says the minutes and the hours; undefined if there are too many that follow no rule. */
function timeWords(minutes: number[], hours: number[]): string | undefined {
  const wholeDay = hours.length === 24;
  const [minute = 0] = minutes, [hour = 0] = hours;
  const end = clock(hours[hours.length - 1] ?? 0, minutes[minutes.length - 1] ?? 0);
  const between = `between ${clock(hour, minute)} and ${end}`;
  if (minutes.length > 1) {
    const step = stepOver(minutes, 60);
    const often = step === 1 ? "every minute" : `every ${step} minutes`;
    if (step && wholeDay) return minute ? `${often} from ${minute} min past the hour` : often;
    if (step && isRun(hours)) return `${often} ${between}`;
    if (wholeDay && minutes.length <= mostListed) {
      return `every hour at ${list(minutes.map(String))} min past`;
    }
  } else {
    const past = minute ? `, ${minute} min past the hour` : "";
    if (wholeDay) return `every hour${past}`;
    const step = stepOver(hours, 24);
    if (step && hour === 0) return `every ${step} hours${past}`;
    if (step && hours.length > 2) return `every ${step} hours from ${clock(hour, minute)}`;
    const even = stepOf(hours);
    if (even && hours.length > 3) {
      return `every ${even === 1 ? "hour" : `${even} hours`} ${between}`;
    }
  }
  const all = hours.flatMap((h) => minutes.map((m) => clock(h, m)));
  return all.length <= mostListed ? `at ${list(all)}` : undefined;
}

const clock = (hour: number, minute: number) =>
  [hour, minute].map((n) => String(n).padStart(2, "0")).join(":");

/** Says the days; "" for all of them; undefined if there are too many that follow no rule. */
function dayWords({ days, months, weekdays, either }: Cron): string | undefined {
  const everyDay = days.length === 31, everyWeekday = weekdays.length === 7;
  if (either && !everyDay && !everyWeekday) return undefined;
  const year = months.length === 12;
  const names = runs(months, monthName);
  if (names === undefined) return undefined;
  if (either || (everyDay && everyWeekday)) return year ? "" : `in ${names}`;
  if (!everyWeekday) {
    const mondayFirst = weekdays.map((d) => d || 7).sort((a, b) => a - b);
    const words = runs(mondayFirst, weekdayName) ?? "";
    const on = isRun(weekdays) && words.includes(" to ") ? "from" : "on";
    return `${on} ${words}${year ? "" : ` in ${names}`}`;
  }
  const ofMonths = `of ${year ? "each month" : names}`;
  const step = stepOf(days);
  if (step && step > 1 && days.length > mostListed) {
    const toTheEnd = (days[days.length - 1] ?? 0) + step > 31;
    return toTheEnd ? `every ${step} days from day ${days[0]} ${ofMonths}` : undefined;
  }
  const listed = runs(days, String);
  if (days.length > 1) return listed && `on days ${listed} ${ofMonths}`;
  return year || months.length > 1 ? `on day ${listed} ${ofMonths}` : `on ${names} ${listed}`;
}

const monthName = (month: number) =>
  new Date(2000, month - 1).toLocaleString("en", { month: "long" });

/** Returns the name of a day of the week; 1 is Monday. */
const weekdayName = (day: number) =>
  new Date(2001, 0, day).toLocaleString("en", { weekday: "long" });

/** Returns the step from each value to the next; undefined: there is none that is the same. */
function stepOf(values: number[]): number | undefined {
  const [first = 0, second] = values;
  if (second === undefined) return undefined;
  return values.every((v, i) => v === first + i * (second - first)) ? second - first : undefined;
}

/** Returns the step of values that go on so from one day or hour to the next, which has a size. */
function stepOver(values: number[], size: number): number | undefined {
  const step = stepOf(values);
  return step && step * values.length === size ? step : undefined;
}

const isRun = (values: number[]) => values.length === 1 || stepOf(values) === 1;

/** Lists values by name: a, b and d to f. undefined if that would be too long. */
function runs(values: number[], name: (value: number) => string): string | undefined {
  const parts: string[] = [];
  for (let i = 0, end = 0; i < values.length; i = end) {
    for (end = i + 1; values[end] === (values[i] ?? 0) + end - i; end++);
    const run = values.slice(i, end).map(name);
    parts.push(...(run.length > 2 ? [`${run[0]} to ${run[run.length - 1]}`] : run));
  }
  return parts.length <= mostListed ? list(parts) : undefined;
}

/** Joins words: a, b and c. */
function list(words: string[]): string {
  if (words.length < 2) return words.join("");
  return `${words.slice(0, -1).join(", ")} and ${words[words.length - 1]}`;
}
