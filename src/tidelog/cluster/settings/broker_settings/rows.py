"""One row of a table of broker settings for each verdict on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidelog.cluster.settings.config_schema import ConfigType, Setting, Validator, Verdict, at_least

BOOLEAN, STRING, CLASS = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.CLASS
INT, SHORT, LONG = ConfigType.INT, ConfigType.SHORT, ConfigType.LONG
DOUBLE, LIST, PASSWORD = ConfigType.DOUBLE, ConfigType.LIST, ConfigType.PASSWORD

# Reasons that several areas have.
FIXED_PAUSE = "a node asks again after a fixed pause"
ONE_LOOP = "one event loop does all the work of a node"
NO_JAVA = "this node does not run in a Java virtual machine"
NO_SHARE_GROUPS = "this node has no share groups"


def used(
    name: str,
    kind: ConfigType,
    default: str | None,
    documentation: str,
    *,
    minimum: int | None = None,
    validator: Validator | None = None,
    live: bool = False,
    hidden: bool = False,
) -> Setting:
    """The node does what it says. `live`: a change has an effect at once."""
    return Setting(
        name,
        kind,
        default,
        documentation,
        validator or _minimum(minimum),
        dynamic=live,
        hidden=hidden,
    )


def constant(
    name: str,
    kind: ConfigType,
    default: str,
    documentation: str,
    reason: str,
    *,
    minimum: int | None = None,
) -> Setting:
    """The node is always as if it had this value."""
    return Setting(
        name,
        kind,
        default,
        documentation,
        _minimum(minimum),
        dynamic=False,
        verdict=Verdict.CONSTANT,
        reason=reason,
    )


def meaningless(
    name: str,
    kind: ConfigType,
    default: str | None,
    documentation: str,
    reason: str,
    *,
    minimum: int | None = None,
    live: bool = False,
    per_broker: bool = False,
    hidden: bool = False,
) -> Setting:
    """The node has nothing that it could set. `live`: Kafka lets it be changed at any time."""
    return Setting(
        name,
        kind,
        default,
        documentation,
        _minimum(minimum),
        dynamic=live,
        per_broker=per_broker,
        hidden=hidden,
        verdict=Verdict.MEANINGLESS,
        reason=reason,
    )


def refused(
    name: str,
    kind: ConfigType,
    default: str | None,
    documentation: str,
    reason: str,
    *,
    allows: Callable[[Any], bool] | None = None,
) -> Setting:
    """Other values than the default, or than those that `allows` says, would be a lie."""
    served = Setting(name, kind, default, "").parse(default or "") if default else None

    def check(value: Any) -> str | None:
        if value == served or not (value or served) or (allows is not None and allows(value)):
            return None
        return reason[0].upper() + reason[1:]

    return Setting(
        name,
        kind,
        default,
        documentation,
        check,
        dynamic=False,
        verdict=Verdict.REFUSED,
        reason=reason,
    )


def _minimum(minimum: int | None) -> Validator | None:
    return None if minimum is None else at_least(minimum)
