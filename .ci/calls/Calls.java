// Calls a node by the client that openapi-generator makes for Java.
import java.util.List;
import java.util.Map;
import org.openapitools.client.ApiClient;
import org.openapitools.client.ApiException;
import org.openapitools.client.api.TaskTypesApi;
import org.openapitools.client.api.TasksApi;
import org.openapitools.client.auth.HttpBearerAuth;
import org.openapitools.client.model.*;

class Calls {
  static final String TYPE = "openapi-generator-java";

  public static void main(String[] args) throws Exception {
    ApiClient client = new ApiClient().setBasePath(System.getenv("ASYNCFLOW_URL"));
    // setBearerToken sets only the first of the contract's three kinds of tokens.
    HttpBearerAuth auth = (HttpBearerAuth) client.getAuthentication("bearerAuth");
    auth.setBearerToken(System.getenv("ASYNCFLOW_TOKEN"));
    TasksApi tasks = new TasksApi(client);

    // The client can't write a choice's list, but it reads one.
    Interval pauses = new Interval(30.0);
    Stage inspect = new Stage().name("inspect").retry(new RetryPolicy().interval(pauses));
    TaskTypesApi types = new TaskTypesApi(client);
    TaskType type = types.putTaskType(TYPE, new TaskTypeSpec().addStagesItem(inspect), null);
    equal(type.getStages().get(0).getName(), "inspect");
    RetryPolicy retry = types.getTaskType("oapi-codegen").getStages().get(0).getRetry();
    equal(retry.getInterval().getActualInstance(), List.of(5.0, 30.0));
    NewTask task = new NewTask().type(TYPE).context(Map.of("image", "harbour.jpg"));
    String id = tasks.submitTask(task, null).getId();
    equal(tasks.getTask(id, null).getContext(), Map.of("image", "harbour.jpg"));
    TaskList list = tasks.listTasks(
        TYPE, null, null, null, null, null, null, null, null, null, null);
    equal(list.getData().stream().map(Task::getId).toList(), List.of(id));
    try {
      tasks.submitTask(new NewTask().type("missing").context(1), null);
      throw new AssertionError("a task of a missing type was accepted");
    } catch (ApiException e) {
      equal(Problem.fromJson(e.getResponseBody()).getCode(), ErrorCode.NOT_FOUND);
    }
  }

  static void equal(Object got, Object want) {
    if (!want.equals(got)) throw new AssertionError("got " + got + ", want " + want);
  }
}
