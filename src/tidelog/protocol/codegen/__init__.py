"""Writes the codec of one message class at one version, as Python without loops over fields.

Everything that the schema knows is decided here, once: which fields the version has, which are
nullable, whether lengths are compact. What is left at run time is one `unpack_from` or `pack` per
run of fixed-width fields (the length of the next string or array joins the run), and a loop per
array. Nested structs are written in place, so a message costs one function call.
"""

from tidelog.protocol.codegen.decoding import Decoder, compile_decoder
from tidelog.protocol.codegen.encoding import Encoder, compile_encoder

__all__ = ["Decoder", "Encoder", "compile_decoder", "compile_encoder"]
