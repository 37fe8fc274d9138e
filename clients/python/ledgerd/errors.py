"""What a call to a node can end with, as exceptions."""

from __future__ import annotations

from typing import Dict, List, Sequence, Type

from .answers import Status


class LedgerdError(Exception):
    """The base of everything that a call to a node raises."""


class ConnectionFailed(LedgerdError):
    """No node answered in time.

    A submission may have reached a node all the same: submit the same bundle again.
    """


class MalformedAnswer(LedgerdError):
    """A node's answer is not what the API promises."""


class ApiError(LedgerdError):
    """A node answered with an error.

    `code` is the word of the Connect protocol. `reason` is the node's word for a refusal because of
    another shard (shard_down, shard_full, shard_lost), or of a bundle that is certain to fail (then
    Client.submit returns statuses), else "". With `retry` the same call may be
    made again. With `unsure` a submission may have been admitted: submit the same bytes again, and
    no other transaction in its place.
    """

    code = "unknown"

    def __init__(self, code: str, message: str, *, retry: bool = False, unsure: bool = False,
                 reason: str = "", writers: Sequence[str] = ()) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.retry = retry
        self.unsure = unsure
        self.reason = reason
        self.writers: List[str] = list(writers)


class InvalidArgument(ApiError):
    """The node refuses the request, or the bundle, as it is."""


class NotFound(ApiError):
    """There is no such thing, or the node does not know it yet."""


class PermissionDenied(ApiError):
    """A signature is wrong or missing, or the caller may not do this."""


class Unauthenticated(ApiError):
    """The node wants to know the caller: see docs/access.md."""


class FailedPrecondition(ApiError):
    """The ledger is not in a state for this: an unknown organisation, an expired transaction."""


class ResourceExhausted(ApiError):
    """The node, or another shard, has too much to do."""


class Unavailable(ApiError):
    """The node takes no such call now."""


class DeadlineExceeded(ApiError):
    """The time that the caller allowed is over."""


class DataLoss(ApiError):
    """The node's data is damaged: ask another one."""


_BY_CODE: Dict[str, Type[ApiError]] = {
    "invalid_argument": InvalidArgument,
    "not_found": NotFound,
    "permission_denied": PermissionDenied,
    "unauthenticated": Unauthenticated,
    "failed_precondition": FailedPrecondition,
    "resource_exhausted": ResourceExhausted,
    "unavailable": Unavailable,
    "deadline_exceeded": DeadlineExceeded,
    "data_loss": DataLoss,
}


def api_error(code: str, message: str, **further: object) -> ApiError:
    """Make the exception of a code."""
    return _BY_CODE.get(code, ApiError)(code, message, **further)  # type: ignore[arg-type]


class NotDone(LedgerdError):
    """A transaction did not take effect: it failed or expired, or has not come so far."""

    def __init__(self, status: Status) -> None:
        super().__init__(f"{status.id.hex()}: {status.state}: "
                         f"{status.reason or status.reason_code or 'not at the level yet'}")
        self.status = status
        self.reason_code = status.reason_code


class TransactionFailed(NotDone):
    """A transaction is in a block, and changed nothing; `reason_code` says why."""


class TransactionExpired(NotDone):
    """The last block in which a transaction was valid has passed without it."""


class TransactionPending(NotDone):
    """A transaction has not reached the level in time. Wait for it, or submit it again."""


def require(statuses: Sequence[Status], level: str) -> None:
    """Raise unless all transactions have reached the level and none has failed."""
    for status in statuses:
        if status.state == "failed":
            raise TransactionFailed(status)
        if status.state == "expired":
            raise TransactionExpired(status)
    for status in statuses:
        if not status.reached(level):
            raise TransactionPending(status)
