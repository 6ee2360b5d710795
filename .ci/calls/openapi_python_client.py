"""Makes the calls of docs/generated-clients.md by openapi-python-client's client."""

import os
from datetime import datetime, timedelta, timezone
from typing import Any

import asyncflow_client.models as m
from asyncflow_client.api.task_types import delete_task_type, get_task_type, put_task_type
from asyncflow_client.api.tasks import cancel_task, get_task, list_tasks, submit_task
from asyncflow_client.client import AuthenticatedClient
from asyncflow_client.types import Response

TYPE = "openapi-python-client"
HOUR = timedelta(hours=1)


def connect(token: str) -> AuthenticatedClient:
    return AuthenticatedClient(os.environ["ASYNCFLOW_URL"], token)


client = connect(os.environ["ASYNCFLOW_TOKEN"])


def put_and_get_task_type() -> None:
    tolerate = m.ChildFailureType1(
        tolerate=m.ChildTolerance(percent=2.5)
    )
    inspect = m.Stage(
        name="inspect",
        timeout="90s",
        max_processing_time="90m",
        retry=m.RetryPolicy(max_attempts=3, interval=[5, 30.5]),
    )
    pages = m.Stage(
        name="pages",
        retry=m.RetryPolicy(interval=-10),
        fan_out=m.FanOut(items="/pages", on_child_failure=tolerate),
    )
    resize = m.Stage(name="resize", retry=m.RetryPolicy(interval="poly"))
    spec = m.TaskTypeSpec(stages=[inspect, pages, resize], retention="720h")
    put = put_task_type.sync_detailed(TYPE, client=client, body=spec)
    assert put.status_code == 201, put
    put = put_task_type.sync_detailed(TYPE, client=client, body=spec)  # changes nothing
    assert put.status_code == 200, put

    got = get_task_type.sync(TYPE, client=client)
    assert isinstance(got, m.TaskType), got
    assert (got.version, got.retention) == (1, "720h"), got
    assert (got.stages[0].timeout, got.stages[0].max_processing_time) == ("90s", "90m"), got
    intervals = [s.retry.interval for s in got.stages if isinstance(s.retry, m.RetryPolicy)]
    assert intervals == [[5, 30.5], -10, "poly"], got
    assert isinstance(got.stages[1].fan_out, m.FanOut), got
    assert got.stages[1].fan_out.on_child_failure == tolerate, got


def submit_tasks() -> list[str]:
    context = {"image": "harbour.jpg", "tags": []}
    task = m.NewTask(type_=TYPE, context=context, delay="1h", priority=[60, 0, 0])
    answer = submit_task.sync_detailed(client=client, body=task)
    delayed = answer.parsed
    assert isinstance(delayed, m.SubmittedTask) and answer.status_code == 201, answer
    assert delayed.status is m.Status.WAITING, delayed
    run_at = datetime.now(timezone.utc).replace(microsecond=0) + HOUR
    task = m.NewTask(type_=TYPE, context=1, run_at=run_at)
    timed = submit_task.sync(client=client, body=task)
    assert isinstance(timed, m.SubmittedTask) and timed.order_time == run_at, timed
    got = get_task.sync(delayed.id, client=client)
    assert isinstance(got, m.Task) and got.id == delayed.id, got
    assert (got.context, got.priority) == (context, [60, 0, 0]), got
    assert datetime.now(timezone.utc) - got.created_at < HOUR, got
    return [delayed.id, timed.id]


def read_page(**filter: Any) -> tuple[list[str], Any]:
    page = list_tasks.sync(client=client, type_=TYPE, **filter)
    assert isinstance(page, m.TaskList), page
    return [task.id for task in page.data], page.next_cursor


def read_pages(first: str, second: str) -> None:
    waiting: dict[str, Any] = {
        "status": m.Status.WAITING,
        "since": datetime.now(timezone.utc) - HOUR,
        "limit": 1,
    }
    ids, cursor = read_page(**waiting)
    assert ids == [second], ids
    ids, _ = read_page(cursor=cursor, **waiting)
    assert ids == [first], ids
    ids, _ = read_page(status=m.Status.SUCCEEDED)
    assert ids == [], ids


def problem(
    answer: Response[Any], status: int, code: m.ErrorCode, field: str | None = None
) -> None:
    """Checks an answer that is a problem."""
    got = answer.parsed
    assert isinstance(got, m.Problem), answer
    assert (answer.status_code, got.status, got.code) == (status, status, code), got
    assert [error.field for error in got.errors or []] == ([field] if field else []), got


def refused_calls() -> None:
    invalid, missing = m.ErrorCode.INVALID_ARGUMENT, m.ErrorCode.NOT_FOUND
    task = m.NewTask(type_=TYPE, context=1, run_at=datetime.now(timezone.utc), delay="1h")
    problem(submit_task.sync_detailed(client=client, body=task), 400, invalid, "delay")
    task = m.NewTask(type_="missing", context=1)
    problem(submit_task.sync_detailed(client=client, body=task), 404, missing, "type")
    page = list_tasks.sync_detailed(client=client, type_=TYPE, cursor="none")
    problem(page, 400, invalid, "cursor")
    problem(delete_task_type.sync_detailed(TYPE, client=client), 409, m.ErrorCode.CONFLICT)
    stranger = get_task_type.sync_detailed(TYPE, client=connect("none"))
    problem(stranger, 401, m.ErrorCode.UNAUTHENTICATED)


def delete_all(*ids: str) -> None:
    for task_id in ids:
        reason = m.Cancellation(reason="over")
        cancelled = cancel_task.sync(task_id, client=client, body=reason)
        assert isinstance(cancelled, m.Task), cancelled
        assert cancelled.status is m.Status.CANCELLED, cancelled
    deleted = delete_task_type.sync_detailed(TYPE, client=client)
    assert (deleted.status_code, deleted.parsed) == (204, None), deleted
    gone = get_task_type.sync_detailed(TYPE, client=client)
    problem(gone, 404, m.ErrorCode.NOT_FOUND, "type")


put_and_get_task_type()
first, second = submit_tasks()
read_pages(first, second)
refused_calls()
delete_all(first, second)
