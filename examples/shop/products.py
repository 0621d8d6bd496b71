"""What the shop sells: the table that the pipeline joins events with."""

import csv
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).parent / "products.csv"


@dataclass(frozen=True, slots=True)
class Product:
    product_id: str
    name: str
    category: str
    price_cents: int


def read_products(file: Path = FILE) -> dict[str, Product]:
    """The products by their id."""
    with file.open(newline="") as lines:
        return {
            row["product_id"]: Product(
                row["product_id"], row["name"], row["category"], int(row["price_cents"])
            )
            for row in csv.DictReader(lines)
        }
