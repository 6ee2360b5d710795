// src/chart/series.ts src/format.ts src/json.ts src/json_fault.ts src/schedules/cron.ts src/schedules/when.ts src/task/trace_url.ts src/types/document.ts d98f9611d96c2350d9644674d589e9387507f87af33b836def01132800cef121
var exported = (() => {
  var __defProp = Object.defineProperty;
  var __getOwnPropDesc = Object.getOwnPropertyDescriptor;
  var __getOwnPropNames = Object.getOwnPropertyNames;
  var __hasOwnProp = Object.prototype.hasOwnProperty;
  var __export = (target, all) => {
    for (var name in all)
      __defProp(target, name, { get: all[name], enumerable: true });
  };
  var __copyProps = (to, from, except, desc) => {
    if (from && typeof from === "object" || typeof from === "function") {
      for (let key of __getOwnPropNames(from))
        if (!__hasOwnProp.call(to, key) && key !== except)
          __defProp(to, key, { get: () => from[key], enumerable: !(desc = __getOwnPropDesc(from, key)) || desc.enumerable });
    }
    return to;
  };
  var __toCommonJS = (mod) => __copyProps(__defProp({}, "__esModule", { value: true }), mod);

  // <stdin>
  var stdin_exports = {};
  __export(stdin_exports, {
    "src/chart/series.ts": () => series_exports,
    "src/format.ts": () => format_exports,
    "src/json.ts": () => json_exports,
    "src/json_fault.ts": () => json_fault_exports,
    "src/schedules/when.ts": () => when_exports,
    "src/task/trace_url.ts": () => trace_url_exports,
    "src/types/document.ts": () => document_exports
  });

  // src/chart/series.ts
  var series_exports = {};
  __export(series_exports, {
    columns: () => columns,
    gaps: () => gaps,
    reasons: () => reasons,
    stepOf: () => stepOf,
    zoomed: () => zoomed
  });

  // src/format.ts
  var format_exports = {};
  __export(format_exports, {
    amount: () => amount,
    bytes: () => bytes,
    claimerOf: () => claimerOf,
    count: () => count,
    duration: () => duration,
    latency: () => latency,
    milliseconds: () => milliseconds,
    percent: () => percent,
    rate: () => rate,
    span: () => span,
    tasks: () => tasks,
    words: () => words
  });
  var units = [
    ["d", 864e5],
    ["h", 36e5],
    ["min", 6e4],
    ["s", 1e3]
  ];
  function duration(ms) {
    if (ms < 1e3) return `${ms < 10 ? Math.round(ms * 10) / 10 : Math.round(ms)} ms`;
    for (const [i, [unit, size]] of units.entries()) {
      if (ms < size) continue;
      const whole = Math.floor(ms / size);
      const next = units[i + 1];
      if (!next) return `${whole < 10 ? Math.round(ms / 100) / 10 : whole} s`;
      const rest = Math.floor(ms % size / next[1]);
      return rest && whole < 10 ? `${whole} ${unit} ${rest} ${next[0]}` : `${whole} ${unit}`;
    }
    return "";
  }
  var counts = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
  var rates = new Intl.NumberFormat("en", { maximumSignificantDigits: 2 });
  var count = (n) => counts.format(n);
  var tasks = (n) => `${counts.format(n)} ${n === 1 ? "task" : "tasks"}`;
  var rate = (n) => n ? `${rates.format(n)}/s` : "\u2013";
  function latency(l) {
    if (!l) return "\u2013";
    const low = duration(l.p50_ms), high = duration(l.p99_ms ?? l.p95_ms ?? 0);
    const [n, unit, more] = low.split(" ");
    return `${!more && high.split(" ")[1] === unit ? n : low} / ${high}`;
  }
  var sizes = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
  function bytes(n) {
    if (n < 1 << 10) return `${count(n)} B`;
    if (n < 1 << 20) return `${sizes.format(n / (1 << 10))} KiB`;
    return n < 1 << 30 ? `${sizes.format(n / (1 << 20))} MiB` : `${sizes.format(n / (1 << 30))} GiB`;
  }
  var words = (name) => name.replaceAll("_", " ");
  function amount(quota, n) {
    if (quota.endsWith("_bytes")) return bytes(n);
    return quota.endsWith("_per_second") ? rate(n) : count(n);
  }
  var spans = {
    w: 7 * 864e5,
    d: 864e5,
    h: 36e5,
    m: 6e4,
    s: 1e3,
    ms: 1,
    us: 1e-3,
    "\xB5s": 1e-3,
    ns: 1e-6
  };
  function milliseconds(text) {
    let sum = 0;
    for (const [, n, unit = ""] of text.matchAll(/([\d.]+)(w|d|h|ms|m|s|us|µs|ns)/g)) {
      sum += Number(n) * (spans[unit] ?? 0);
    }
    return sum;
  }
  var span = (text) => duration(milliseconds(text));
  var percent = (share) => `${rates.format(share * 100)} %`;
  function claimerOf({ claimer, subject }) {
    return subject && subject !== claimer ? `${claimer} (token of ${subject})` : claimer ?? "";
  }

  // src/chart/series.ts
  var seconds = (at) => Date.parse(at) / 1e3;
  var stepOf = (h) => milliseconds(h.step) / 1e3;
  function columns(h, series, now = Date.now() / 1e3) {
    const step = stepOf(h), from = seconds(h.from), until = seconds(h.until);
    const points = new Map(h.points.map((p) => [seconds(p.at), p]));
    const known = recorded(h);
    const last = known.at(-1)?.[1] ?? until;
    const counted = step > 60 ? until : Math.max(last - step, now - step - 120);
    const times = [];
    const rows = series.map(() => []);
    for (let at = from; at < until; at += step) {
      times.push(at);
      const p = points.get(at);
      const idle = known.some(([a, b]) => at >= a && at < b);
      series.forEach((s, i) => {
        const early = s.zero === "count" && at >= counted;
        const n = (p && s.of(p)) ?? (s.zero && idle ? 0 : null);
        rows[i]?.push(early ? null : n);
      });
    }
    return [times, ...rows];
  }
  var recorded = (h) => (h.recorded ?? []).map((r) => [seconds(r.from), seconds(r.until)]);
  var late = 180;
  function gaps(h) {
    const step = stepOf(h), until = seconds(h.until);
    const points = h.points.map((p) => [seconds(p.at), seconds(p.at) + step]);
    const all = [];
    let at = seconds(h.from);
    for (const [from, end] of [...recorded(h), ...points].sort((a, b) => a[0] - b[0])) {
      if (from > at) all.push([at, from]);
      at = Math.max(at, end);
    }
    if (at < until - late) all.push([at, until]);
    return all;
  }
  function reasons(h) {
    const most = /* @__PURE__ */ new Map();
    for (const { backlog = {} } of h.points) {
      for (const [why, n] of Object.entries(backlog)) most.set(why, Math.max(n, most.get(why) ?? 0));
    }
    return [...most].sort(([a, m], [b, n]) => n - m || (a < b ? -1 : 1)).map(([why]) => why);
  }
  function zoomed([from, until], now) {
    const least = from < now - 86400 ? 6 * 3600 : 600;
    const wider = Math.max(0, least - (until - from)) / 2;
    const end = Math.min(now, until + wider);
    return [Math.min(from - wider, end - least), end];
  }

  // src/json.ts
  var json_exports = {};
  __export(json_exports, {
    depthOf: () => depthOf,
    elements: () => elements,
    indented: () => indented,
    isJSON: () => isJSON,
    jsonOf: () => jsonOf,
    members: () => members,
    parse: () => parse,
    plain: () => plain,
    rowsOf: () => rowsOf,
    typedOf: () => typedOf
  });
  var token = /\s*("[^"\\]*(?:\\.[^"\\]*)*"|[{}[\]:,]|[^\s{}[\]:,"]+)/gy;
  function isJSON(text) {
    try {
      JSON.parse(text);
      return true;
    } catch {
      return false;
    }
  }
  function parse(text) {
    if (!isJSON(text)) return void 0;
    const top = { name: "", text: "[", children: [] };
    const open = [top];
    let name = "", scalar2 = "";
    token.lastIndex = 0;
    for (let m = token.exec(text); m; m = token.exec(text)) {
      const word = m[1];
      const into = open[open.length - 1];
      if (!into) return void 0;
      if (word === ":") {
        name = scalar2;
        scalar2 = "";
        continue;
      }
      if (scalar2) {
        into.children.push({ name, text: scalar2, children: [] });
        name = scalar2 = "";
      }
      if (word === "{" || word === "[") {
        const node = { name, text: word, children: [] };
        name = "";
        into.children.push(node);
        open.push(node);
      } else if (word === "}" || word === "]") {
        open.pop();
      } else if (word !== ",") {
        scalar2 = word;
      }
    }
    if (scalar2) top.children.push({ name, text: scalar2, children: [] });
    return open.length === 1 && top.children.length === 1 ? top.children[0] : void 0;
  }
  function members(text) {
    const out = /* @__PURE__ */ Object.create(null);
    let depth = 0, begin = 0, before = "";
    let key;
    token.lastIndex = 0;
    for (let m = token.exec(text); m; m = token.exec(text)) {
      const word = m[1];
      if (depth === 1 && word === ":") {
        key = JSON.parse(before);
        begin = token.lastIndex;
      } else if (depth === 1 && (word === "," || word === "}") && key !== void 0) {
        out[key] = text.slice(begin, token.lastIndex - 1).trim();
        key = void 0;
      }
      if (word === "{" || word === "[") depth++;
      if (word === "}" || word === "]") depth--;
      before = word;
    }
    return out;
  }
  function elements(text) {
    const out = [];
    let depth = 0, begin = 0;
    token.lastIndex = 0;
    for (let m = token.exec(text); m; m = token.exec(text)) {
      const word = m[1];
      const end = token.lastIndex - 1;
      if (depth === 1 && (word === "," || word === "]")) {
        const one = text.slice(begin, end).trim();
        if (one) out.push(one);
        begin = token.lastIndex;
      }
      if (word === "{" || word === "[") {
        depth++;
        if (depth === 1) begin = token.lastIndex;
      }
      if (word === "}" || word === "]") depth--;
    }
    return out;
  }
  function rowsOf(list2) {
    return elements(members(list2).data ?? "[]").map(members);
  }
  function plain(text) {
    return text.startsWith('"') ? JSON.parse(text) : text;
  }
  function typedOf(text) {
    const bare = plain(text);
    return isJSON(bare) ? text : bare;
  }
  function jsonOf(typed) {
    return isJSON(typed) ? typed : JSON.stringify(typed);
  }
  function depthOf(text) {
    let depth = 0, most = 0;
    token.lastIndex = 0;
    for (let m = token.exec(text); m; m = token.exec(text)) {
      if (m[1] === "{" || m[1] === "[") most = Math.max(most, ++depth);
      if (m[1] === "}" || m[1] === "]") depth--;
    }
    return most;
  }
  function indented(text) {
    const top = parse(text);
    return top ? lines(top, "").join("\n") : text;
  }
  function lines({ name, text, children }, indent) {
    const begin = `${indent}${name && `${name}: `}${text}`;
    if (text !== "{" && text !== "[") return [begin];
    const end = text === "{" ? "}" : "]";
    if (children.length === 0) return [begin + end];
    const last = children.length - 1;
    const inner = children.flatMap((c, i) => {
      const of = lines(c, `${indent}  `);
      return i < last ? [...of.slice(0, -1), `${of[of.length - 1]},`] : of;
    });
    return [begin, ...inner, indent + end];
  }

  // src/json_fault.ts
  var json_fault_exports = {};
  __export(json_fault_exports, {
    faultOf: () => faultOf
  });
  function faultOf(text) {
    if (isJSON(text)) return "";
    if (text.trim() === "") return "it is empty";
    const at = faultAt(text);
    if (at >= text.trimEnd().length) return "it ends too early";
    const lines2 = text.slice(0, at).split("\n");
    const char = String.fromCodePoint(text.codePointAt(at) ?? 0);
    const what = char === "\n" || char === "\r" ? "the end of the line" : char;
    return `line ${lines2.length}, column ${(lines2.pop() ?? "").length + 1}, at ${what}`;
  }
  var space = /[ \t\n\r]*/y;
  var scalar = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null/y;
  var string = /"[^"\\\0-\x1f]*(?:\\(?:["\\/bfnrt]|u[\da-fA-F]{4})[^"\\\0-\x1f]*)*/y;
  function faultAt(text) {
    const ends = [];
    let at = 0;
    let next = "value";
    const take = (pattern) => {
      pattern.lastIndex = at;
      if (!pattern.test(text)) return false;
      at = pattern.lastIndex;
      return true;
    };
    const takeString = () => take(string) && text[at] === '"' && ++at > 0;
    const takeValue = (char) => {
      next = "comma";
      if (char === '"') return takeString();
      if (char !== "{" && char !== "[") return take(scalar);
      ends.push(char === "{" ? "}" : "]");
      next = char === "{" ? "firstName" : "first";
      return ++at > 0;
    };
    for (; ; ) {
      take(space);
      const char = text[at], end = ends[ends.length - 1];
      if (char === void 0) return at;
      if (char === end && (next === "first" || next === "firstName" || next === "comma")) {
        ends.pop();
        next = "comma";
        at++;
      } else if (next === "value" || next === "first") {
        if (!takeValue(char)) return at;
      } else if (next === "name" || next === "firstName") {
        if (!takeString()) return at;
        next = "colon";
      } else if (char === (next === "colon" ? ":" : ",") && end !== void 0) {
        next = next === "colon" || end === "]" ? "value" : "name";
        at++;
      } else {
        return at;
      }
    }
  }

  // src/schedules/when.ts
  var when_exports = {};
  __export(when_exports, {
    cronWords: () => cronWords,
    when: () => when
  });

  // src/schedules/cron.ts
  var macros = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *"
  };
  var monthNames = [
    "JAN",
    "FEB",
    "MAR",
    "APR",
    "MAY",
    "JUN",
    "JUL",
    "AUG",
    "SEP",
    "OCT",
    "NOV",
    "DEC"
  ];
  var weekdayNames = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];
  function parseCron(cron) {
    const fields = (macros[cron] ?? cron).trim().split(/\s+/);
    const [minute = "", hour = "", day = "", month = "", weekday = ""] = fields;
    const all = {
      minutes: valuesOf(minute, 0, 59),
      hours: valuesOf(hour, 0, 23),
      days: valuesOf(day, 1, 31),
      months: valuesOf(month, 1, 12, monthNames),
      weekdays: valuesOf(weekday, 0, 6, weekdayNames)
    };
    if (fields.length !== 5 || Object.values(all).some((v) => v.length === 0)) return void 0;
    return { ...all, either: !isAny(day) && !isAny(weekday) };
  }
  var isAny = (field) => field.split(",").some((part) => /^[*?](\/0*1)?$/.test(part));
  var range = /^(?:([*?])|(\w+)(?:-(\w+))?)(?:\/(\d+))?$/;
  function valuesOf(field, least, most, names = []) {
    const found = /* @__PURE__ */ new Set();
    const numberOf = (text) => {
      const name = names.indexOf(text.toUpperCase());
      return name < 0 ? Number(text) : name + least;
    };
    for (const part of field.split(",")) {
      const [matches, any, first = "", last, step] = range.exec(part) ?? [];
      const from = any ? least : numberOf(first);
      const to = any || step && !last ? most : numberOf(last ?? first);
      const by = Number(step ?? 1);
      if (!matches || !(from >= least && from <= to && to <= most && by > 0)) return [];
      for (let value = from; value <= to; value += by) found.add(value);
    }
    return [...found].sort((a, b) => a - b);
  }

  // src/schedules/when.ts
  function when(s) {
    if (s.every) return `every ${span(s.every)}`;
    const cron = s.cron ?? "";
    const words2 = cronWords(cron);
    const zone = s.time_zone ?? "UTC";
    if (words2 === cron) return `by ${cron}, ${zone} time`;
    return / (at|on|from|between|in) /.test(` ${words2}`) ? `${words2}, ${zone} time` : words2;
  }
  function cronWords(cron) {
    const times = parseCron(cron);
    if (!times) return cron;
    const time = timeWords(times.minutes, times.hours);
    const days = dayWords(times);
    if (time === void 0 || days === void 0) return cron;
    if (time.startsWith("every")) return days ? `${time} ${days}` : time;
    if (!days) return `every day ${time}`;
    return days.startsWith("in ") ? `every day ${days} ${time}` : `${days} ${time}`;
  }
  var mostListed = 6;
  function timeWords(minutes, hours) {
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
      const even = stepOf2(hours);
      if (even && hours.length > 3) {
        return `every ${even === 1 ? "hour" : `${even} hours`} ${between}`;
      }
    }
    const all = hours.flatMap((h) => minutes.map((m) => clock(h, m)));
    return all.length <= mostListed ? `at ${list(all)}` : void 0;
  }
  var clock = (hour, minute) => [hour, minute].map((n) => String(n).padStart(2, "0")).join(":");
  function dayWords({ days, months, weekdays, either }) {
    const everyDay = days.length === 31, everyWeekday = weekdays.length === 7;
    if (either && !everyDay && !everyWeekday) return void 0;
    const year = months.length === 12;
    const names = runs(months, monthName);
    if (names === void 0) return void 0;
    if (either || everyDay && everyWeekday) return year ? "" : `in ${names}`;
    if (!everyWeekday) {
      const mondayFirst = weekdays.map((d) => d || 7).sort((a, b) => a - b);
      const words2 = runs(mondayFirst, weekdayName) ?? "";
      const on = isRun(weekdays) && words2.includes(" to ") ? "from" : "on";
      return `${on} ${words2}${year ? "" : ` in ${names}`}`;
    }
    const ofMonths = `of ${year ? "each month" : names}`;
    const step = stepOf2(days);
    if (step && step > 1 && days.length > mostListed) {
      const toTheEnd = (days[days.length - 1] ?? 0) + step > 31;
      return toTheEnd ? `every ${step} days from day ${days[0]} ${ofMonths}` : void 0;
    }
    const listed = runs(days, String);
    if (days.length > 1) return listed && `on days ${listed} ${ofMonths}`;
    return year || months.length > 1 ? `on day ${listed} ${ofMonths}` : `on ${names} ${listed}`;
  }
  var monthName = (month) => new Date(2e3, month - 1).toLocaleString("en", { month: "long" });
  var weekdayName = (day) => new Date(2001, 0, day).toLocaleString("en", { weekday: "long" });
  function stepOf2(values) {
    const [first = 0, second] = values;
    if (second === void 0) return void 0;
    return values.every((v, i) => v === first + i * (second - first)) ? second - first : void 0;
  }
  function stepOver(values, size) {
    const step = stepOf2(values);
    return step && step * values.length === size ? step : void 0;
  }
  var isRun = (values) => values.length === 1 || stepOf2(values) === 1;
  function runs(values, name) {
    const parts = [];
    for (let i = 0, end = 0; i < values.length; i = end) {
      for (end = i + 1; values[end] === (values[i] ?? 0) + end - i; end++) ;
      const run = values.slice(i, end).map(name);
      parts.push(...run.length > 2 ? [`${run[0]} to ${run[run.length - 1]}`] : run);
    }
    return parts.length <= mostListed ? list(parts) : void 0;
  }
  function list(words2) {
    if (words2.length < 2) return words2.join("");
    return `${words2.slice(0, -1).join(", ")} and ${words2[words2.length - 1]}`;
  }

  // src/task/trace_url.ts
  var trace_url_exports = {};
  __export(trace_url_exports, {
    traceURL: () => traceURL
  });
  function traceURL(template, trace) {
    const id = /^00-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}$/.exec(trace)?.[1];
    if (!template || !id || !/^https?:\/\//i.test(template)) return "";
    return template.replaceAll("{trace_id}", id);
  }

  // src/types/document.ts
  var document_exports = {};
  __export(document_exports, {
    documentOf: () => documentOf
  });
  var readOnly = [
    "name",
    "version",
    "paused_at",
    "pause_reason",
    "ramp_until",
    "created_at",
    "updated_at",
    "notifies",
    "searchable_from"
  ];
  function documentOf(type) {
    const own = Object.entries(members(type)).filter(([name]) => !readOnly.includes(name));
    return indented(`{${own.map(([name, text]) => `${JSON.stringify(name)}:${text}`).join(",")}}`);
  }
  return __toCommonJS(stdin_exports);
})();
