"""For schemathesis: nobody waits for a slot that another request of the same run has. See docs/http.md."""

import schemathesis


@schemathesis.hook
def before_call(context, case, kwargs):  # type: ignore[no-untyped-def]
    if case.operation.path.endswith("/acquire"):
        if isinstance(case.body, dict):
            case.body.setdefault("try", "wait_ms" not in case.body)
        elif not case.body:
            case.body = {"try": True}
