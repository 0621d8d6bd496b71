"""SaslHandshake (key 17): the client names its mechanism, the broker lists the ones it has.

Never flexible. After version 0 the tokens follow as bare frames, after version 1 as requests of key
36.
"""

from tidelog.protocol.schema import INT16, STRING, Array, Message, field


class SaslHandshakeRequest(Message, api_key=17, versions="0-1"):
    mechanism: str = field(STRING, "0+")


class SaslHandshakeResponse(Message, api_key=17, versions="0-1"):
    error_code: int = field(INT16, "0+")
    mechanisms: list[str] = field(Array(STRING), "0+")
