"""For schemathesis: limits waits for slots that other requests of the same run hold. See docs/api.md."""

import schemathesis
from schemathesis.core import NotSet


@schemathesis.hook
def before_call(context, case, kwargs):  # type: ignore[no-untyped-def]
    if not case.operation.path.endswith("/acquire"):
        return
    if isinstance(case.body, NotSet):
        case.body, case.media_type = {"try": True}, "application/json"
    elif isinstance(case.body, dict):
        wait = case.body.get("wait_ms")
        if isinstance(wait, (int, float)):
            case.body["wait_ms"] = min(wait, 100)
        elif wait is None and case.body.get("try") in (None, False):
            case.body["try"] = True
