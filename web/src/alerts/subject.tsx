import { answer, api, type Schemas } from "../api.ts";
import { nameOf } from "../endpoints/endpoints.tsx";
import { useLoad } from "../load.ts";
import { subjectPage } from "./rules.ts";

type Episode = Schemas["AlertEpisode"];

/** What an alert is about, as a link to its page. */
export function Subject({ episode: e }: { episode: Episode }) {
  const href = subjectPage(e);
  const named = e.alert === "endpoint_failing" && e.state === "firing"; // past ones may be many
  const name = named ? <EndpointName episode={e} /> : e.subject;
  return href ? <a data-row href={href}>{name}</a> : <>{name}</>;
}

/** The URL of the endpoint that an alert is about; until it is known, or if it is gone, its id. */
function EndpointName({ episode: e }: { episode: Episode }) {
  const [type, stage, id = ""] = e.subject.split("/");
  const load = useLoad((signal) => answer(api.GET("/v1/endpoints/{id}",
    { signal, params: { path: { id } } })), [id]);
  return <>{load.data ? `${nameOf(load.data)} of ${type}/${stage}` : e.subject}</>;
}
