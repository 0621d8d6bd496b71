"""What requests need: the operations that their clients have to be allowed, and on which resources.

A handler declares its needs as data, in Kafka's words:

    NEEDS = (
        Need(AclOperation.READ, ResourceType.GROUP, group_id),
        Need(AclOperation.READ, ResourceType.TOPIC, topic_names, Refusal.ROW),
    )

They are all that a decision about a request rests on. What a client is not allowed shows in one of
three ways, the `Refusal` of the need. A whole request can be refused before its handler runs. Rows
and omissions are the handler's to make, which knows what its answer looks like.

An API that needs nothing says so with an empty tuple: it is open to everybody who may connect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, TypeAlias

from tidelog.security.acl import CLUSTER_NAME, AclOperation, ResourceType

# names(body, version): the resources that a request is about. Topics are named by name or id, as
# the request has it. The body is what dispatch decoded; for the handlers that decode themselves it
# is what they decoded.
Names: TypeAlias = Callable[[Any, int], Iterable[str | bytes]]


class Unnamed(Enum):
    """Resources that a request does not name."""

    IN_ANSWER = auto()
    """Those that the answer would tell of: all groups, say, or the topics of a transaction."""
    ANY_ONE = auto()
    """One of the type is enough, whichever the client is allowed."""


class Refusal(Enum):
    """How a request is answered that needs what its client is not allowed."""

    REQUEST = auto()
    """It is refused as a whole: the handler's `error_response` with the error of the resource."""
    ROW = auto()
    """What it says about the resource is refused, and the rest is served."""
    OMISSION = auto()
    """It is served, but its answer does not tell of the resource."""


@dataclass(slots=True, frozen=True)
class Need:
    """An operation that the client of a request has to be allowed.

    names: finds the resources in the request.
    unless: nothing is needed of a client that is allowed this instead.
    """

    operation: AclOperation
    resource: ResourceType
    names: Names | Unnamed
    refusal: Refusal = Refusal.REQUEST
    unless: Need | None = None


def cluster(body: Any, version: int) -> Iterable[str]:
    """The cluster, whatever the request says."""
    return (CLUSTER_NAME,)


def group_id(body: Any, version: int) -> Iterable[str]:
    return (body.group_id,)


def transactional_id(body: Any, version: int) -> Iterable[str]:
    return (body.transactional_id,)


def topic_names(body: Any, version: int) -> Iterable[str]:
    return [topic.name for topic in body.topics]
