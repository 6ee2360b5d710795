"""Calls a node by the client that openapi-generator makes for Python."""

import os

import openapi_client as api

TYPE = "openapi-generator-python"
client = api.ApiClient(
    api.Configuration(
        host=os.environ["ASYNCFLOW_URL"], access_token=os.environ["ASYNCFLOW_TOKEN"]
    )
)
tasks = api.TasksApi(client)

retry = api.RetryPolicy(interval=api.Interval([5, 30]))
spec = api.TaskTypeSpec(stages=[api.Stage(name="inspect", retry=retry)])
assert api.TaskTypesApi(client).put_task_type(TYPE, spec).stages[0].name == "inspect"
context = {"image": "harbour.jpg"}
task_id = tasks.submit_task(api.NewTask(type=TYPE, context=context)).id
assert tasks.get_task(task_id).context == context
assert [task.id for task in tasks.list_tasks(TYPE).data] == [task_id]
try:
    tasks.submit_task(api.NewTask(type="missing", context=1))
except api.ApiException as refused:
    assert api.Problem.from_json(refused.body).code is api.ErrorCode.NOT_FOUND, refused
else:
    raise AssertionError("a task of a missing type was accepted")
