"""A setting of a topic that is changed all the time: what was acknowledged stays.

One client counts up. An attempt that got no answer may be carried out later, over a connection that
was given up, and so take the setting back: such values are possible ever after.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.cluster.metadata.image import ConfigResourceType
from tidelog.protocol.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from tidelog.protocol.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.server.network.peer_connection import PeerError
from tidelog.testing.simulation.client import SimulatedClient
from tidelog.testing.simulation.simulation import SECOND_US
from tidelog.testing.simulation.workloads.asking import ask
from tidelog.testing.simulation.workloads.topics import create_topics
from tidelog.testing.simulation.workloads.workspace import Workspace

_TOPIC = "configured"
_SETTING = "retention.ms"
_FIRST = 1_000_000_000
_REST_S = 0.03
_RETRY_S = 0.05
_KNOWN_US_MAX = 3 * SECOND_US
"""So long may it take until any node knows of the last change."""


class SettingChanges:
    """Run by `ClusterScenario` where its options say so."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._acknowledged = 0
        self._unclear: set[int] = set()

    def start(self) -> None:
        client = self.workspace.make_client("settings-admin")
        client.start(self._change(client))

    def wind_up(self) -> None:
        client = self.workspace.make_client("settings-reader")
        client.start(self._look(client))

    def failures(self) -> Iterable[str]:
        return ()

    async def _change(self, client: SimulatedClient) -> None:
        workspace = self.workspace
        await create_topics(client, workspace, [_TOPIC], 1, {})
        number = 0
        while not workspace.is_over:
            number += 1
            while not workspace.is_over:
                code = await self._set(client, number)
                if code is ErrorCode.NONE:
                    self._acknowledged = number
                    client.simulation.count("settings changed")
                    break
                self._unclear.add(number)
                await client.sleep(_RETRY_S * client.random.random())
            await client.sleep(_REST_S * client.random.random())

    async def _set(self, client: SimulatedClient, number: int) -> ErrorCode | None:
        setting = AlterableConfig(name=_SETTING, config_operation=0, value=str(_FIRST + number))
        resource = AlterConfigsResource(
            resource_type=ConfigResourceType.TOPIC, resource_name=_TOPIC, configs=[setting]
        )
        try:
            answer = await client.call(
                IncrementalAlterConfigsRequest(resources=[resource]),
                IncrementalAlterConfigsResponse,
            )
        except PeerError as error:
            client.trace(f"{_SETTING} {number}: {error}")
            return None
        code = ErrorCode(answer.responses[0].error_code)
        client.trace(f"{_SETTING} {number}: {code.name}")
        return code

    async def _look(self, client: SimulatedClient) -> None:
        if not self._acknowledged:
            return
        resource = DescribeConfigsResource(
            resource_type=ConfigResourceType.TOPIC,
            resource_name=_TOPIC,
            configuration_keys=[_SETTING],
        )
        deadline_us = client.simulation.now_us + _KNOWN_US_MAX
        while True:
            answered = await ask(
                client,
                DescribeConfigsRequest(resources=[resource]),
                DescribeConfigsResponse,
                lambda response: response.results[0].error_code,
            )
            (row,) = answered.response.results[0].configs
            number = int(row.value or _FIRST) - _FIRST
            if number >= self._acknowledged or number in self._unclear:
                return
            if client.simulation.now_us > deadline_us:
                client.problem(
                    f"{_SETTING} is at change {number}, and change {self._acknowledged} was "
                    "acknowledged"
                )
                return
            await client.sleep(_RETRY_S)
