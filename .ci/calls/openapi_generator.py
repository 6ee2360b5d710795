"""Makes the calls of docs/generated-clients.md by openapi-generator's client for Python."""

import os
from datetime import datetime, timedelta, timezone

import openapi_client as api

TYPE = "openapi-generator-python"
HOUR = timedelta(hours=1)


def connect(token: str) -> api.ApiClient:
    # The client writes times in a query in UTC, but the offset not as RFC 3339 has it.
    config = api.Configuration(
        host=os.environ["ASYNCFLOW_URL"],
        access_token=token,
        datetime_format="%Y-%m-%dT%H:%M:%S.%fZ",
    )
    return api.ApiClient(config)


client = connect(os.environ["ASYNCFLOW_TOKEN"])
types, tasks = api.TaskTypesApi(client), api.TasksApi(client)


def put_task_type() -> None:
    tolerate = api.ChildFailureOneOf(
        tolerate=api.ChildTolerance(percent=2.5)
    )
    inspect = api.Stage(
        name="inspect",
        timeout="90s",
        max_processing_time="90m",
        retry=api.RetryPolicy(max_attempts=3, interval=api.Interval([5, 30.5])),
    )
    pages = api.Stage(
        name="pages",
        retry=api.RetryPolicy(interval=api.Interval(-10.0)),
        fan_out=api.FanOut(
            items="/pages", on_child_failure=api.ChildFailure(tolerate)
        ),
    )
    resize = api.Stage(name="resize", retry=api.RetryPolicy(interval=api.Interval("poly")))
    spec = api.TaskTypeSpec(stages=[inspect, pages, resize], retention=api.Retention("720h"))
    put = types.put_task_type_with_http_info(TYPE, spec)
    assert (put.status_code, put.data.version) == (201, 1), put
    put = types.put_task_type_with_http_info(TYPE, spec)  # changes nothing
    assert (put.status_code, put.data.version) == (200, 1), put

    got = types.get_task_type(TYPE)
    assert got.retention.actual_instance == "720h", got
    assert got.stages[0].timeout == "90s", got
    assert got.stages[0].max_processing_time == "90m", got
    assert [stage.retry.interval.actual_instance for stage in got.stages] == [
        [5, 30.5],
        -10,
        "poly",
    ], got
    assert got.stages[1].fan_out.on_child_failure.actual_instance == tolerate, got


def submit_tasks() -> list[str]:
    context = {"image": "harbour.jpg", "tags": []}
    task = api.NewTask(type=TYPE, context=context, delay="1h", priority=api.Priority([60, 0, 0]))
    delayed = tasks.submit_task_with_http_info(task)
    assert delayed.status_code == 201, delayed
    assert delayed.data.status is api.Status.WAITING, delayed
    run_at = datetime.now(timezone.utc).replace(microsecond=0) + HOUR
    timed = tasks.submit_task(api.NewTask(type=TYPE, context=1, run_at=run_at))
    assert timed.order_time == run_at, timed
    got = tasks.get_task(delayed.data.id)
    assert (got.id, got.context) == (delayed.data.id, context), got
    assert got.priority.actual_instance == [60, 0, 0], got
    assert datetime.now(timezone.utc) - got.created_at < HOUR, got
    return [delayed.data.id, timed.id]


def list_tasks(first: str, second: str) -> None:
    since = datetime.now(timezone.utc) - HOUR
    page = tasks.list_tasks(TYPE, status=api.Status.WAITING, since=since, limit=1)
    assert [task.id for task in page.data] == [second], page
    page = tasks.list_tasks(
        TYPE, status=api.Status.WAITING, since=since, limit=1, cursor=page.next_cursor
    )
    assert [task.id for task in page.data] == [first], page
    assert tasks.list_tasks(TYPE, status=api.Status.SUCCEEDED).data == []


def refused(status: int, code: api.ErrorCode, field: str | None, call, *args, **named) -> None:
    """Makes a call, and checks the problem that the exception has."""
    try:
        call(*args, **named)
    except api.ApiException as e:
        assert isinstance(e.data, api.Problem), e
        fields = [error.var_field for error in e.data.errors or []]
        assert (e.status, e.data.status, e.data.code) == (status, status, code), e
        assert fields == ([field] if field else []), e
    else:
        raise AssertionError(f"not refused with {code}")


def refused_calls() -> None:
    invalid, missing = api.ErrorCode.INVALID_ARGUMENT, api.ErrorCode.NOT_FOUND
    twice = api.NewTask(type=TYPE, context=1, run_at=datetime.now(timezone.utc), delay="1h")
    refused(400, invalid, "delay", tasks.submit_task, twice)
    refused(404, missing, "type", tasks.submit_task, api.NewTask(type="missing", context=1))
    refused(400, invalid, "cursor", tasks.list_tasks, TYPE, cursor="none")
    refused(409, api.ErrorCode.CONFLICT, None, types.delete_task_type, TYPE)
    stranger = api.TaskTypesApi(connect("none"))
    refused(401, api.ErrorCode.UNAUTHENTICATED, None, stranger.get_task_type, TYPE)


def delete_all(*ids: str) -> None:
    for task_id in ids:
        cancelled = tasks.cancel_task(task_id, api.Cancellation(reason="over"))
        assert cancelled.status is api.Status.CANCELLED, cancelled
    deleted = types.delete_task_type_with_http_info(TYPE)
    assert (deleted.status_code, deleted.data) == (204, None), deleted
    refused(404, api.ErrorCode.NOT_FOUND, "type", types.get_task_type, TYPE)


put_task_type()
first, second = submit_tasks()
list_tasks(first, second)
refused_calls()
delete_all(first, second)
