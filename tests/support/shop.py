"""The shop of the demo: its tables, and half an hour of customers, orders and deliveries.

This module makes statements only, the same at every call; its callers decide where and when they run.
`tests.tools.record_demo` records them for the package, `tests.tools.demo` runs the first of them on a given server.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal

SCHEMA = "shop"
#: How long the shop is looked at, in seconds.
OPEN_FOR = 1800

_TABLES = (
    """CREATE TABLE shop.customers (
        id INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, name VARCHAR(40) NOT NULL, email VARCHAR(80),
        segment ENUM('new', 'regular', 'vip') NOT NULL DEFAULT 'new', joined DATETIME NOT NULL)""",
    """CREATE TABLE shop.orders (
        id INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, customer_id INT UNSIGNED NOT NULL,
        status ENUM('new', 'paid', 'shipped', 'cancelled') NOT NULL DEFAULT 'new', total DECIMAL(10, 2) NOT NULL,
        details {json}, placed DATETIME(3) NOT NULL)""",
    """CREATE TABLE shop.order_items (
        order_id INT UNSIGNED NOT NULL, line SMALLINT UNSIGNED NOT NULL, sku VARCHAR(20) NOT NULL,
        quantity SMALLINT UNSIGNED NOT NULL, price DECIMAL(8, 2) NOT NULL, PRIMARY KEY (order_id, line))""",
)
_FIRST_NAMES = ("Zoë", "Łukasz", "Ada", "José", "Mei", "Olga", "Sam", "Nora", "Émile", "Yuki", "Priya", "Tom")
_LAST_NAMES = (
    "Martin",
    "Nowak",
    "Byron",
    "Ruiz",
    "林",
    "Ivanova",
    "Okafor",
    "Berg",
    "Roux",
    "佐藤",
    "Nair",
    "O'Hara",
)
_NAMES = [f"{first} {last}" for first, last in zip(_FIRST_NAMES, _LAST_NAMES, strict=True)]
_ARTICLES = (
    *(("tea-green", "6.50"), ("tea-earl-grey", "5.90"), ("mug-blue", "12.00"), ("pot-cast-iron", "49.00")),
    *(("honey-500g", "8.25"), ("spoon-set", "19.99"), ("filter-100", "3.40"), ("tin-large", "14.75")),
)
_CITIES = ("Berlin", "Kraków", "Oslo", "Lisboa", "東京", "Zürich")


@dataclass(frozen=True)
class Work:
    """The statements of one transaction, and when it happens: seconds after the one before it."""

    after: float
    statements: tuple[str, ...]


def create_statements(json_type: str = "JSON") -> tuple[str, ...]:
    """What makes the tables; a server without JSON takes TEXT for it."""
    return (f"CREATE DATABASE {SCHEMA}", *(table.format(json=json_type) for table in _TABLES))


def transactions(count: int, seed: int = 4389) -> Iterator[Work]:
    """`count` transactions, spread over half an hour, now many, now few. In the middle of them a column is added."""
    shop = _Shop(random.Random(seed))
    rates = [1.2 + math.sin(number / 17) for number in range(count)]
    average = OPEN_FOR / sum(1 / rate for rate in rates)
    for number, rate in enumerate(rates):
        after = average / rate * shop.random.uniform(0.3, 1.7)
        if number == 0:
            yield Work(0, shop.first_customers())
        elif number == count // 2:
            yield Work(after, ("ALTER TABLE shop.orders ADD COLUMN note VARCHAR(80) AFTER total",))
            shop.has_notes = True
        elif number == count * 3 // 4:
            # One that is larger than the others.
            yield Work(after, ("UPDATE shop.order_items SET price = price * 0.95 WHERE sku LIKE 'tea-%'",))
        else:
            yield Work(after, shop.next())


@dataclass
class _Shop:
    """What is open in the shop, so that what happens next can follow from it."""

    random: random.Random
    has_notes: bool = False
    customers: int = 0
    orders: int = 0
    new: list[int] = field(default_factory=list)
    paid: list[int] = field(default_factory=list)
    cancelled: list[int] = field(default_factory=list)

    def first_customers(self) -> tuple[str, ...]:
        values = ", ".join(self._customer() for _ in range(3))
        return (f"INSERT INTO shop.customers (name, email, segment, joined) VALUES {values}",)

    def next(self) -> tuple[str, ...]:
        """What happens now: mostly orders, and what becomes of them."""
        chance = self.random.random()
        if chance < 0.36 or not self.new:
            return self._order()
        if chance < 0.56:
            return self._pay()
        if chance < 0.72 and self.paid:
            return self._ship()
        if chance < 0.80:
            return self._correct()
        if chance < 0.86:
            return self._cancel()
        if chance < 0.90 and self.cancelled:
            return self._forget()
        if chance < 0.95 and self.customers < len(_NAMES):
            return (f"INSERT INTO shop.customers (name, email, segment, joined) VALUES {self._customer()}",)
        return self._promote()

    def _customer(self) -> str:
        name = _NAMES[self.customers % len(_NAMES)]
        self.customers += 1
        email = f"'customer{self.customers}@example.com'" if self.random.random() < 0.8 else "NULL"
        return f"({_text(name)}, {email}, 'new', NOW())"

    def _order(self) -> tuple[str, ...]:
        self.orders += 1
        self.new.append(self.orders)
        articles = self.random.sample(_ARTICLES, self.random.choice((1, 1, 2, 3)))
        items = [(sku, self.random.choice((1, 1, 2, 4)), price) for sku, price in articles]
        total = sum(quantity * Decimal(price) for _, quantity, price in items)
        values = (
            f"{self.orders}, {self.random.randint(1, self.customers)}, {total}, {self._details()}, NOW(3)"
        )
        lines = ", ".join(
            f"({self.orders}, {line}, '{sku}', {quantity}, {price})"
            for line, (sku, quantity, price) in enumerate(items, 1)
        )
        return (
            f"INSERT INTO shop.orders (id, customer_id, total, details, placed) VALUES ({values})",
            f"INSERT INTO shop.order_items VALUES {lines}",
        )

    def _details(self) -> str:
        details: dict[str, object] = {"channel": self.random.choice(("web", "app", "phone"))}
        if self.random.random() < 0.6:
            details["ship_to"] = {"city": self.random.choice(_CITIES), "express": self.random.random() < 0.3}
        if self.random.random() < 0.3:
            details["coupon"] = f"SPRING{self.random.randrange(5, 25, 5)}"
        return _text(json.dumps(details, ensure_ascii=False))

    def _correct(self) -> tuple[str, ...]:
        order = self.random.choice(self.new[-3:])
        return (f"UPDATE shop.orders SET details = {self._details()} WHERE id = {order}",)

    def _pay(self) -> tuple[str, ...]:
        order = self._take(self.new)
        self.paid.append(order)
        return (f"UPDATE shop.orders SET status = 'paid' WHERE id = {order}",)

    def _ship(self) -> tuple[str, ...]:
        order = self._take(self.paid)
        note = ", note = 'left with a neighbour'" if self.has_notes and self.random.random() < 0.5 else ""
        return (f"UPDATE shop.orders SET status = 'shipped'{note} WHERE id = {order}",)

    def _cancel(self) -> tuple[str, ...]:
        order = self._take(self.new)
        self.cancelled.append(order)
        return (f"UPDATE shop.orders SET status = 'cancelled' WHERE id = {order}",)

    def _forget(self) -> tuple[str, ...]:
        order = self._take(self.cancelled)
        return (
            f"DELETE FROM shop.order_items WHERE order_id = {order}",
            f"DELETE FROM shop.orders WHERE id = {order}",
        )

    def _promote(self) -> tuple[str, ...]:
        customer = self.random.randint(1, self.customers)
        segment = "CASE segment WHEN 'new' THEN 'regular' WHEN 'regular' THEN 'vip' ELSE 'new' END"
        return (f"UPDATE shop.customers SET segment = {segment} WHERE id = {customer}",)

    def _take(self, waiting: list[int]) -> int:
        return waiting.pop(self.random.randrange(min(3, len(waiting))))


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"
