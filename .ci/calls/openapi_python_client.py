"""Calls a node by the client that openapi-python-client makes."""

import os

from asyncflow_client.api.task_types import put_task_type
from asyncflow_client.api.tasks import get_task, list_tasks, submit_task
from asyncflow_client.client import AuthenticatedClient
from asyncflow_client.models import (
    ErrorCode,
    NewTask,
    Problem,
    RetryPolicy,
    Stage,
    SubmittedTask,
    Task,
    TaskList,
    TaskType,
    TaskTypeSpec,
)

TYPE = "openapi-python-client"
client = AuthenticatedClient(os.environ["ASYNCFLOW_URL"], os.environ["ASYNCFLOW_TOKEN"])

spec = TaskTypeSpec(stages=[Stage(name="inspect", retry=RetryPolicy(interval=[5, 30]))])
put = put_task_type.sync(TYPE, client=client, body=spec)
assert isinstance(put, TaskType) and put.stages[0].name == "inspect", put
context = {"image": "harbour.jpg"}
submitted = submit_task.sync(client=client, body=NewTask(type_=TYPE, context=context))
assert isinstance(submitted, SubmittedTask), submitted
task = get_task.sync(submitted.id, client=client)
assert isinstance(task, Task) and task.context == context, task
page = list_tasks.sync(client=client, type_=TYPE)
assert isinstance(page, TaskList) and [t.id for t in page.data] == [submitted.id], page
refused = submit_task.sync(client=client, body=NewTask(type_="missing", context=1))
assert isinstance(refused, Problem) and refused.code is ErrorCode.NOT_FOUND, refused
