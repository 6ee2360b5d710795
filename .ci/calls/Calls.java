// Makes the calls of docs/generated-clients.md by openapi-generator's client for Java.
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.OffsetDateTime;
import java.time.temporal.ChronoUnit;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.openapitools.client.ApiClient;
import org.openapitools.client.ApiException;
import org.openapitools.client.api.SchedulesApi;
import org.openapitools.client.api.TaskTypesApi;
import org.openapitools.client.api.TasksApi;
import org.openapitools.client.auth.HttpBearerAuth;
import org.openapitools.client.model.*;

class Calls {
  static final String TYPE = "openapi-generator-java";
  static final String LISTS = TYPE + "-lists";
  static final TaskTypesApi types = new TaskTypesApi(connect(System.getenv("ASYNCFLOW_TOKEN")));
  static final TasksApi tasks = new TasksApi(types.getApiClient());

  public static void main(String[] args) throws Exception {
    putTaskType();
    readLists();
    String first = submitDelayed();
    String second = submitTimed();
    listTasks(first, second);
    refusedCalls();
    deleteAll(first, second);
  }

  static ApiClient connect(String token) {
    ApiClient client = new ApiClient().setBasePath(System.getenv("ASYNCFLOW_URL"));
    // setBearerToken sets only the first of the contract's three kinds of tokens.
    ((HttpBearerAuth) client.getAuthentication("bearerAuth")).setBearerToken(token);
    return client;
  }

  static void putTaskType() throws Exception {
    ChildFailureOneOf tolerate = new ChildFailureOneOf()
        .tolerate(new ChildTolerance().percent(2.5));
    Stage inspect = new Stage().name("inspect").timeout("90s").maxProcessingTime("90m")
        .retry(new RetryPolicy().maxAttempts(3).interval(new Interval(30.5)));
    Stage pages = new Stage().name("pages")
        .retry(new RetryPolicy().interval(new Interval(-10.0)))
        .fanOut(new FanOut().items("/pages").onChildFailure(new ChildFailure(tolerate)));
    Stage resize = new Stage().name("resize")
        .retry(new RetryPolicy().interval(new Interval("poly")));
    TaskTypeSpec spec = new TaskTypeSpec().retention(new Retention("720h"))
        .stages(List.of(inspect, pages, resize));
    equal(types.putTaskTypeWithHttpInfo(TYPE, spec, null, null, null).getStatusCode(), 201);
    equal(types.putTaskTypeWithHttpInfo(TYPE, spec, null, null, null).getStatusCode(), 200);

    TaskType got = types.getTaskType(TYPE);
    equal(got.getVersion(), 1);
    equal(got.getRetention().getActualInstance(), "720h");
    List<Stage> stages = got.getStages();
    equal(stages.get(0).getTimeout(), "90s");
    equal(stages.get(0).getMaxProcessingTime(), "90m");
    equal(stages.get(0).getRetry().getInterval().getActualInstance(), 30.5);
    equal(stages.get(1).getRetry().getInterval().getActualInstance(), -10.0);
    equal(stages.get(2).getRetry().getInterval().getActualInstance(), "poly");
    equal(stages.get(1).getFanOut().getOnChildFailure().getActualInstance(), tolerate);
  }

  /** Lists in place of a number: the client reads them, but can't write them. */
  static void readLists() throws Exception {
    put("/v1/task-types/" + LISTS, """
        {"stages": [{"name": "inspect", "retry": {"interval": [5, 30.5]}}, {"name": "resize"}]}""");
    RetryPolicy retry = types.getTaskType(LISTS).getStages().get(0).getRetry();
    equal(retry.getInterval().getActualInstance(), List.of(5.0, 30.5));
    put("/v1/schedules/" + LISTS, """
        {"type": "%s", "context": 1, "every": "8760h", "priority": [60, 30]}""".formatted(LISTS));
    SchedulesApi schedules = new SchedulesApi(types.getApiClient());
    equal(schedules.getSchedule(LISTS).getPriority().getActualInstance(), List.of(60, 30));
    types.deleteTaskType(LISTS, null, true);
  }

  static void put(String path, String body) throws Exception {
    HttpRequest request = HttpRequest.newBuilder(URI.create(System.getenv("ASYNCFLOW_URL") + path))
        .header("Authorization", "Bearer " + System.getenv("ASYNCFLOW_TOKEN"))
        .header("Content-Type", "application/json")
        .PUT(HttpRequest.BodyPublishers.ofString(body)).build();
    var answer = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
    equal(answer.statusCode(), 201);
  }

  static String submitDelayed() throws Exception {
    Map<String, Object> context = Map.of("image", "harbour.jpg", "tags", List.of());
    NewTask task = new NewTask().type(TYPE).context(context).delay("1h")
        .priority(new Priority(60));
    var answer = tasks.submitTaskWithHttpInfo(task, null, null);
    equal(answer.getStatusCode(), 201);
    equal(answer.getData().getStatus(), Status.WAITING);
    Task got = tasks.getTask(answer.getData().getId(), null);
    equal(got.getId(), answer.getData().getId());
    equal(got.getContext(), context);
    equal(got.getPriority().getActualInstance(), 60);
    equal(got.getCreatedAt().isAfter(OffsetDateTime.now().minusHours(1)), true);
    return got.getId();
  }

  static String submitTimed() throws Exception {
    OffsetDateTime runAt = OffsetDateTime.now().plusHours(1).truncatedTo(ChronoUnit.SECONDS);
    NewTask task = new NewTask().type(TYPE).context(1).runAt(runAt);
    Task timed = tasks.submitTask(task, null, null);
    equal(timed.getOrderTime().toInstant(), runAt.toInstant());
    return timed.getId();
  }

  static void listTasks(String first, String second) throws Exception {
    OffsetDateTime since = OffsetDateTime.now().minusHours(1);
    TaskList newest = readPage(Status.WAITING, since, 1, null);
    equal(newest.getData().stream().map(Task::getId).toList(), List.of(second));
    TaskList oldest = readPage(Status.WAITING, since, 1, newest.getNextCursor());
    equal(oldest.getData().stream().map(Task::getId).toList(), List.of(first));
    equal(readPage(Status.SUCCEEDED, null, null, null).getData(), List.of());
  }

  static TaskList readPage(Status status, OffsetDateTime since, Integer limit, String cursor)
      throws ApiException {
    return tasks.listTasks(
        TYPE, status, null, null, null, null, since, null, null, null, null, null, null, null, null,
        null, null, null, null, null, limit, cursor);
  }

  static void refusedCalls() throws Exception {
    NewTask twice = new NewTask().type(TYPE).context(1).runAt(OffsetDateTime.now()).delay("1h");
    refused(400, ErrorCode.INVALID_ARGUMENT, "delay", () -> tasks.submitTask(twice, null, null));
    NewTask missing = new NewTask().type("missing").context(1);
    refused(404, ErrorCode.NOT_FOUND, "type", () -> tasks.submitTask(missing, null, null));
    refused(400, ErrorCode.INVALID_ARGUMENT, "cursor", () -> readPage(null, null, null, "none"));
    refused(409, ErrorCode.CONFLICT, null, () -> types.deleteTaskType(TYPE, null, null));
    TaskTypesApi stranger = new TaskTypesApi(connect("none"));
    refused(401, ErrorCode.UNAUTHENTICATED, null, () -> stranger.getTaskType(TYPE));
  }

  static void deleteAll(String... ids) throws Exception {
    for (String id : ids) {
      Task task = tasks.cancelTask(id, new Cancellation().reason("over"));
      equal(task.getStatus(), Status.CANCELLED);
    }
    equal(types.deleteTaskTypeWithHttpInfo(TYPE, null, null).getStatusCode(), 204);
    refused(404, ErrorCode.NOT_FOUND, "type", () -> types.getTaskType(TYPE));
  }

  interface Call {
    void make() throws ApiException;
  }

  /** Makes a call, and checks the problem in the exception's body. */
  static void refused(int status, ErrorCode code, String field, Call call) throws Exception {
    try {
      call.make();
    } catch (ApiException e) {
      Problem problem = Problem.fromJson(e.getResponseBody());
      List<FieldError> fields = problem.getErrors();
      String named = fields == null || fields.isEmpty() ? null : fields.get(0).getField();
      equal(Arrays.asList(e.getCode(), problem.getStatus(), problem.getCode(), named),
          Arrays.asList(status, status, code, field));
      return;
    }
    throw new AssertionError("not refused with " + code);
  }

  static void equal(Object got, Object want) {
    if (!Objects.equals(got, want)) throw new AssertionError("got " + got + ", want " + want);
  }
}
