"""The graph that `plan` shows, of the file that `init` writes."""

from pathlib import Path

from tidelog.spark.pipeline import Pipeline
from tidelog.spark.pipeline.plan import Plan
from tidelog.spark.pipeline.starter import starter_text


def _plan(folder: Path) -> Plan:
    file = folder / "pipeline.toml"
    file.write_text(starter_text("shop", "pipeline.toml"))
    pipeline = Pipeline.load(file, {"TIDELOG_BOOTSTRAP": "here:9092"})
    assert not pipeline.warnings
    return pipeline.plan()


def test_each_node_comes_after_what_it_reads(tmp_path: Path) -> None:
    plan = _plan(tmp_path)
    assert [(each.part, each.name, each.kind, each.reads) for each in plan.nodes] == [
        ("source", "orders", "topic", ()),
        ("source", "customers", "sql", ()),
        ("step", "distinct_orders", "dedupe", ("orders",)),
        ("step", "sales", "sql", ("distinct_orders", "customers")),
        ("sink", "sales", "topic", ("sales",)),
    ]
    assert [each.is_streaming for each in plan.nodes] == [True, False, True, True, True]
    assert "dead letters to orders.dead, watermark at - 10 min" in plan.node("orders").detail
    (sink,) = plan.sinks
    assert (sink.mode, sink.trigger) == ("append", "every 1 s")
    assert sink.checkpoint == str(tmp_path / "checkpoints/shop/sales")


def test_the_plan_as_json_and_for_graphviz(tmp_path: Path) -> None:
    plan = _plan(tmp_path)
    nodes = plan.as_json()["nodes"]
    assert nodes[3]["reads"] == ["distinct_orders", "customers"]
    assert "trigger" not in nodes[3]
    assert nodes[4]["trigger"] == "every 1 s"
    dot = plan.as_dot()
    assert dot.startswith('digraph "shop" {')
    assert '  "customers" -> "sales" [style=dashed];' in dot
    assert '  "sales" -> "sink.sales" [style=solid];' in dot
    assert '"sink.sales" [label="sales\\ntopic", shape=house];' in dot
