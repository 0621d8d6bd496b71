"""`format` and what goes with it in a topic source, as options of the source."""

from tidelog.spark.pipeline.file.document import Section

FORMATS = ("raw", "string", "json", "avro", "protobuf")
CORRUPT_COLUMN = "_corrupt"

_CORRUPT = {"fail": "fail", "column": "column", "dead-letter": "deadLetter"}
_FRAMINGS = {
    "avro": (
        "avroFraming",
        {"none": "none", "confluent": "confluent", "single-object": "singleObject"},
    ),
    "protobuf": ("protobufFraming", {"none": "none", "confluent": "confluent"}),
}


def parse_value_format(section: Section) -> dict[str, str]:
    """The options; keys that do not belong to the format are errors.

    Without `corrupt` or `dead_letter`, a value that does not parse fails the query.
    """
    value_format = section.choice("format", FORMATS, "raw")
    options = {"valueFormat": value_format} if "format" in section else {}
    options |= _corrupt_rows(section, value_format)
    options |= _schema(section, value_format)
    if prefix := section.text("prefix"):
        _belongs(section, "prefix", value_format, ("json", "avro", "protobuf"))
        options["valuePrefix"] = prefix
    framing_option, framings = _FRAMINGS.get(value_format, ("", {"none": "none"}))
    framing = section.choice("framing", tuple(framings), "none")
    if "framing" in section:
        _belongs(section, "framing", value_format, tuple(_FRAMINGS))
        options[framing_option] = framings[framing]
    return options


def _schema(section: Section, value_format: str) -> dict[str, str]:
    schema = section.option("schema")
    schema_file = section.path_text("schema_file") if "schema_file" in section else None
    section.raw("schema_file")
    message = section.text("message")
    if schema is not None:
        _belongs(section, "schema", value_format, ("json", "avro"))
    if message is not None:
        _belongs(section, "message", value_format, ("protobuf",))
    if value_format == "protobuf":
        for key, value in (("schema_file", schema_file), ("message", message)):
            if value is None:
                section.missing(key, " (protobuf: a descriptor set, and the message in it)")
        return {"protobufDescriptor": schema_file or "", "protobufMessage": message or ""}
    if schema_file is not None:
        _belongs(section, "schema_file", value_format, ("avro",))
        if schema is not None:
            section.error(f"{section.label} has both 'schema' and 'schema_file'", "schema_file")
        return {"valueSchema": schema_file}
    if schema is not None:
        return {"valueSchema": schema}
    if value_format in ("json", "avro"):
        section.missing("schema", f" for format = '{value_format}'")
    return {}


def _corrupt_rows(section: Section, value_format: str) -> dict[str, str]:
    typed = FORMATS[1:]
    dead_letter = section.text("dead_letter")
    corrupt = section.choice("corrupt", tuple(_CORRUPT), "dead-letter" if dead_letter else "fail")
    for key in ("corrupt", "dead_letter"):
        if key in section:
            _belongs(section, key, value_format, typed)
    if dead_letter is not None and corrupt != "dead-letter":
        section.error(f"'dead_letter' has no effect with corrupt = '{corrupt}'", "dead_letter")
    if dead_letter is None and corrupt == "dead-letter":
        section.error("corrupt = 'dead-letter' needs 'dead_letter', the topic", "corrupt")
    if value_format == "raw":
        return {}
    options = {"corruptRows": _CORRUPT[corrupt]}
    if dead_letter is not None:
        options["deadLetterTopic"] = dead_letter
    return options


def _belongs(section: Section, key: str, value_format: str, formats: tuple[str, ...]) -> None:
    if value_format not in formats:
        section.error(f"'{key}' needs format = {' or '.join(repr(each) for each in formats)}", key)
