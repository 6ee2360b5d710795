import { problemOf, type Caller, type CallOptions } from "./call.js";
import { AsyncflowError, ProblemError } from "./errors.js";
import { limit, pause } from "./time.js";
import { isFinal, type Attempt, type Task } from "./types.js";

/**
 * An event of watch: an entry of the task's journal, or the task's present state, without its
 * context.
 */
export type TaskEvent =
  { attempt: Attempt; task?: undefined } | { attempt?: undefined; task: Task };

const silenceMs = 60_000; // the server writes something every 15 s
const reconnectMinMs = 250;
const reconnectMaxMs = 15_000;

/** A server-sent event. */
interface ServerEvent {
  kind: string;
  id: string;
  data: string;
}

/** The state of a watch. */
interface Place {
  connected: boolean; // at least one stream has begun
  failures: number; // since the last bytes came
  last: string; // id of the last event
  shown: string; // the last task, as it was sent
}

/** Follows a task; see Client.watch. */
export async function* watchTask(
  caller: Caller,
  path: string,
  options: CallOptions,
): AsyncGenerator<TaskEvent, void, undefined> {
  const place: Place = { connected: false, failures: 0, last: "", shown: "" };
  for (;;) {
    let asked = 0;
    try {
      for await (const event of connect(caller, path, options, place)) {
        yield event;
        if (event.task && isFinal(event.task.status)) return;
      }
    } catch (err) {
      options.signal?.throwIfAborted();
      const again =
        place.connected &&
        err instanceof AsyncflowError &&
        (err.code === "unavailable" || err.code === "rate_limited");
      if (!again) throw err;
      if (err instanceof ProblemError) asked = err.retryAfterMs;
    }
    const wait = Math.min(reconnectMinMs * 2 ** place.failures++, reconnectMaxMs);
    await pause(Math.max(wait, Math.min(asked, 60_000)), options.signal);
    options.signal?.throwIfAborted();
  }
}

/** Follows one stream to its end. */
async function* connect(
  caller: Caller,
  path: string,
  options: CallOptions,
  place: Place,
): AsyncGenerator<TaskEvent, void, undefined> {
  const silence = limit(silenceMs, options.signal);
  const headers: Record<string, string> = { Accept: "text/event-stream, application/problem+json" };
  if (place.last) headers["Last-Event-ID"] = place.last;
  try {
    const response = await caller.send("GET", path, { ...options, headers }, silence.signal);
    if (response.status !== 200) throw problemOf(response, await response.text());
    if (!response.headers.get("Content-Type")?.startsWith("text/event-stream") || !response.body) {
      throw new Error("its answer is no stream of events; is it an asyncflow server?");
    }
    place.connected = true;
    for await (const event of events(response.body, () => silence.again())) {
      place.failures = 0;
      const out = take(event, place);
      if (out) yield out;
    }
  } catch (err) {
    throw err instanceof AsyncflowError ? err : caller.noAnswer(err, options);
  } finally {
    silence.done();
  }
}

/** Reads server-sent events. heard is called for any bytes. Leaving the loop ends the stream. */
async function* events(
  body: AsyncIterable<Uint8Array>,
  heard: () => void,
): AsyncGenerator<ServerEvent, void, undefined> {
  const utf8 = new TextDecoder();
  let parts: string[] = [];
  let event: ServerEvent = { kind: "", id: "", data: "" };
  for await (const chunk of body) {
    heard();
    const text = utf8.decode(chunk, { stream: true });
    if (!text.includes("\n")) {
      parts.push(text); // of a long line; joined once, at its end
      continue;
    }
    const lines = (parts.join("") + text).split("\n");
    parts = [lines.pop() ?? ""];
    for (const line of lines) {
      if (line !== "") {
        addLine(event, line);
        continue;
      }
      yield event;
      event = { kind: "", id: "", data: "" };
    }
  }
}

function addLine(event: ServerEvent, line: string): void {
  const colon = line.indexOf(":");
  const value = line.slice(colon + 1).replace(/^ /, "");
  switch (colon < 0 ? line : line.slice(0, colon)) {
    case "event":
      event.kind = value;
      break;
    case "id":
      event.id = value;
      break;
    case "data":
      event.data += value;
  }
}

/** Returns the content of an event. Ignores unknown kinds, and a task that hasn't changed. */
function take(event: ServerEvent, place: Place): TaskEvent | undefined {
  if (event.id) place.last = event.id;
  switch (event.kind) {
    case "attempt":
      return { attempt: JSON.parse(event.data) as Attempt };
    case "task":
      if (event.data === place.shown) return undefined;
      place.shown = event.data;
      return { task: JSON.parse(event.data) as Task };
  }
  return undefined;
}
