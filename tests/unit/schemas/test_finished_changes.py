"""Tables that are waited for one by one, on MySQL without GTIDs: which are in change, and what their answers take."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.errors import ServerError
from replica.schemas.finished_changes import tables_in_change
from replica.source.statement_answers import Answer, Question
from replica.sql.token_reader import TableName

TABLES = [TableName("shop", f"t{number:03}") for number in range(1_050)]
LOCKED, GONE = TABLES[333], TABLES[700]


class Server:
    """Answers with a statement of each table."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.most = 0

    async def query(self, sql: str) -> list[Answer]:
        return []

    async def query_each(self, questions: Sequence[Question]) -> list[Answer]:
        self.asked += [question.sql for question in questions]
        self.most = max(self.most, len(questions))
        return [self._answer(question.sql) for question in questions]

    def _answer(self, sql: str) -> Answer:
        for table, code in ((LOCKED, 1205), (GONE, 1146)):
            if f"`{table.name}`" in sql:
                return ServerError(code, "HY000", "no answer")
        return [("t", "CREATE TABLE ...")]


async def test_few_answers_are_held_at_once() -> None:
    """Those of all tables were: with 10,000 tables of 300 columns 200 MB, as each is a whole CREATE TABLE."""
    server = Server()
    assert await tables_in_change(server, TABLES) == [LOCKED]  # type: ignore[arg-type]
    assert server.asked == [f"SHOW CREATE TABLE `shop`.`{table.name}`" for table in TABLES]
    assert server.most <= 100
