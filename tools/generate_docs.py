"""Writes docs/configuration.md, docs/protocol.md and a part of docs/testing.md: `make docs`.

A test compares the pages with what this gives, so that they cannot fall behind the code.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from tidelog.cluster.settings.config_schema import LONG_MAX, ConfigType, Setting, Verdict
from tidelog.cluster.settings.topic_config import TOPIC_SETTINGS
from tidelog.server.configuration.node_config import SETTINGS
from tidelog.server.handler import load_handlers
from tidelog.server.needs import Need
from tidelog.testing.simulation import planted_bugs as node_bugs
from tidelog.testing.simulation.cluster import planted_bugs as cluster_bugs
from tidelog.testing.simulation.consensus import planted_bugs as quorum_bugs

DOCS = Path(__file__).parent.parent / "docs"


def configuration_page() -> str:
    """Every setting of a node and of a topic."""
    lines = [
        "# Configuration",
        "",
        "Generated from the code by `make docs`; do not edit.",
        "",
        "A node takes its settings, each over the one before, from the defaults, a file",
        "(`tidelog up --config FILE`), the environment (`TIDELOG_NUM_PARTITIONS` is",
        "`num.partitions`) and flags (`--set num.partitions=3`). The file is TOML or a",
        "`server.properties` of Kafka; its name says which (`.toml`, `.properties`), else its",
        "text.",
        "",
        "Every broker setting of Kafka 4.3 is known, and DescribeConfigs tells it:",
        "",
        "- Settings that the node **uses** are in the first table. Those marked *live* can also be",
        "  changed while it runs, through any Kafka admin client, with effect at once (for the",
        "  cleaner: with its next pass).",
        "- **Constant** settings can be set, but the node is always as if they had the value that",
        "  the table shows.",
        "- Settings **without effect** mean nothing here. One line in the log names those, and the",
        "  constant ones, that were set.",
        "- Settings with **one value** ask for something that the node does not have, unless they",
        "  have that value: with another one it does not start, and says why.",
        "",
        "A name that is not in the tables, or a wrong value, is an error that names it and",
        "suggests the near one. `listener.name.<listener>.<setting>` makes a setting for one",
        "listener; of those, `max.connections` and `max.connection.creation.rate` have an effect",
        "here.",
        "",
        "## Settings of a node",
        "",
        *_table(_with(Verdict.USED)),
        "",
        "## Constant settings",
        "",
        *_reason_table("value", _with(Verdict.CONSTANT)),
        "",
        "## Settings with one value",
        "",
        *_reason_table("value", _with(Verdict.REFUSED)),
        "",
        "## Settings without effect",
        "",
        *_reason_table("default", _with(Verdict.MEANINGLESS)),
        "",
        "## Settings of a topic",
        "",
        "Given at creation (`tidelog topic create NAME --set retention.ms=3600000`) or later",
        "(`tidelog topic alter`). Without one, the node's setting in the last column counts.",
        "",
        *_topic_table(),
        "",
    ]
    return "\n".join(lines)


def _with(verdict: Verdict) -> list[Setting]:
    return [setting for setting in SETTINGS if setting.verdict is verdict]


def protocol_page() -> str:
    """Every API that the node serves, with its versions and what it needs."""
    lines = [
        "# Protocol support",
        "",
        "Generated from the handlers by `make docs`; do not edit. ApiVersions answers from the",
        "same table.",
        "",
        "The last column has the operations that the clients of an API have to be allowed, and on",
        "which resources, as Kafka's authorizers have them. Not every request needs all of them.",
        "There is no authorizer yet, so everybody is allowed everything.",
        "",
        "| key | API | versions | needs |",
        "|---:|---|---|---|",
    ]
    for handler in sorted(load_handlers().values(), key=lambda handler: handler.api):
        name = "".join(part.capitalize() for part in handler.api.name.split("_"))
        versions = f"{handler.min_version}-{handler.max_version}"
        if handler.served_from > handler.min_version:
            versions += f" (served from {handler.served_from})"
        needs = ", ".join(dict.fromkeys(map(_need, handler.needs))) or "-"
        lines.append(f"| {int(handler.api)} | {name} | {versions} | {needs} |")
    return "\n".join([*lines, ""])


def _need(need: Need) -> str:
    resource = "".join(part.capitalize() for part in need.resource.name.split("_"))
    text = f"{need.operation.name} on {resource}"
    return text if need.unless is None else f"{text} or {_need(need.unless)}"


def _table(settings: Iterable[Setting]) -> list[str]:
    rows = ["| setting | type | default | meaning |", "|---|---|---|---|"]
    for setting in sorted(settings, key=lambda each: each.name):
        live = " *(live)*" if setting.dynamic else ""
        rows.append(
            f"| `{setting.name}` | {_type(setting)} | {_default(setting)} | "
            f"{_cell(setting.documentation)}{live} |"
        )
    return rows


def _reason_table(value: str, settings: Iterable[Setting]) -> list[str]:
    rows = [f"| setting | type | {value} | meaning | why |", "|---|---|---|---|---|"]
    for setting in sorted(settings, key=lambda each: each.name):
        rows.append(
            f"| `{setting.name}` | {_type(setting)} | {_default(setting)} | "
            f"{_cell(setting.documentation)} | {_cell(setting.reason)} |"
        )
    return rows


def _topic_table() -> list[str]:
    rows = [
        "| setting | type | default | meaning | of the node |",
        "|---|---|---|---|---|",
    ]
    for setting in sorted(TOPIC_SETTINGS, key=lambda each: each.name):
        synonyms = ", ".join(f"`{synonym.name}`" for synonym in setting.synonyms) or "-"
        rows.append(
            f"| `{setting.name}` | {_type(setting)} | {_default(setting)} | "
            f"{_cell(setting.description)} | {synonyms} |"
        )
    return rows


def _type(setting: Setting) -> str:
    return ConfigType(setting.type).name.lower()


def _default(setting: Setting) -> str:
    if setting.default is None:
        return "-"
    if setting.default == "":
        return "empty"
    if setting.default == str(LONG_MAX):
        return "unlimited"
    return f"`{_cell(setting.default)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def testing_page() -> str:
    """The page as it is, with the tables of planted bugs put between their marks."""
    text = (DOCS / "testing.md").read_text()
    head, begin, rest = text.partition("<!-- planted bugs: generated by `make docs` -->\n")
    _, end, tail = rest.partition("<!-- planted bugs: end -->")
    if not begin or not end:
        raise ValueError("docs/testing.md has no place for the tables of planted bugs")
    return "".join([head, begin, *_planted_bugs(), end, tail])


def _planted_bugs() -> Iterator[str]:
    """A table for each simulator: the bugs, what is wrong, and within how many seeds it shows."""
    for title, command, bugs, found_within in (
        ("In clusters", "--cluster", cluster_bugs.PLANTED_BUGS, cluster_bugs.FOUND_WITHIN),
        ("In the quorum", "--consensus", quorum_bugs.PLANTED_BUGS, quorum_bugs.FOUND_WITHIN),
        ("In the node", "", node_bugs.PLANTED_BUGS, node_bugs.FOUND_WITHIN),
    ):
        yield f"\n### {title}\n\n"
        yield f"`tidelog simulate{f' {command}' if command else ''}`, {len(bugs)} bugs.\n\n"
        yield "| bug | what is wrong | found within |\n|---|---|---|\n"
        for name, bug in bugs.items():
            what = " ".join((bug.__doc__ or "").split("\n\n")[0].split())
            yield f"| `{name}` | {what} | {found_within[name]} seeds |\n"
    yield "\n"


PAGES = {
    "configuration.md": configuration_page,
    "protocol.md": protocol_page,
    "testing.md": testing_page,
}


def main() -> None:
    for name, page in PAGES.items():
        (DOCS / name).write_text(page())


if __name__ == "__main__":
    main()
