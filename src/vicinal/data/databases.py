"""Tables from databases: an SQL query, which changes nothing, or a table in a file."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd
import pyarrow as pa

from vicinal.core import listed, nearest, short
from vicinal.core.checks import ECHO, local_path, optional_import, short_text
from vicinal.data.writing import storable

DATABASES = (".sqlite", ".sqlite3", ".db", ".duckdb")
"""Endings of database files."""

QUERY = re.compile(r"\s*(select\s|with\s+[\w\"]+[^.]*\bas\s*\()", re.IGNORECASE)
"""The beginning of a query that only reads."""

_ROWS = 1 << 16


def query_tables(sql: str, database: str | None = None) -> Iterator[pa.Table]:
    """The result of a query, as one or, from DuckDB, several pieces.

    It changes nothing: a file is opened read-only, and a query to a server runs in a transaction that is rolled back,
    and is read-only if the server supports that.

    Args:
        sql: one query, which begins with ``select`` or ``with``.
        database: a file of SQLite or DuckDB, or an address for SQLAlchemy (postgresql://...); None: DuckDB reads the
            files that the query names (``select * from 'houses.parquet'``).

    Raises:
        ValueError: if the database cannot be opened, or the query fails or may do more than read.
    """
    if not QUERY.match(sql):
        raise ValueError(f"sql: expected a query that reads (select ...), got {short(sql, ECHO)}")
    if database is None:
        return _from_duckdb(sql, None)
    if "://" in database and not database.startswith("sqlite:///"):
        return iter([_from_server(sql, database)])
    path = local_path("database", database.removeprefix("sqlite:///"))
    if not path.is_file():
        raise ValueError(f"database: expected a file or an address as postgresql://..., got {short(database, ECHO)}")
    return _from_duckdb(sql, path) if path.suffix.lower() == ".duckdb" else iter([_from_sqlite(sql, path)])


def read_database(path: Path, table: str) -> pd.DataFrame:
    """A table of a database file; "": its only one."""
    tables = "select name from sqlite_master where type in ('table', 'view') and name not like 'sqlite_%'"
    if path.suffix.lower() == ".duckdb":
        tables = "select table_name from information_schema.tables"
    names = [row[0] for row in _rows(query_tables(tables, str(path))).itertuples(index=False)]
    if table not in names and (table or len(names) != 1):
        choice = f"one of the tables {listed(names)}" if table else "one table"
        got = f"{short(table)}{nearest(table, names)}" if table else f"{listed(names) or 'none'}"
        raise ValueError(f"{path.name}: expected {choice}, got {got}; name one as {path.name}#NAME")
    quoted = (table or names[0]).replace('"', '""')
    return _rows(query_tables(f'select * from "{quoted}"', str(path)))  # noqa: S608 it is quoted, and only read


def _rows(tables: Iterator[pa.Table]) -> pd.DataFrame:
    return pa.concat_tables(list(tables)).to_pandas()


def _refused(database: str, wrong: Exception) -> ValueError:
    first = str(wrong).strip().partition("\n")[0]  # the other lines show the query
    return ValueError(f"database: expected a query that {short_text(database)} answers, got: {short_text(first, ECHO)}")


def _from_sqlite(sql: str, path: Path) -> pa.Table:
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as opened:
            cursor = opened.execute(sql)
            return _table(cursor.fetchall(), [column[0] for column in cursor.description])
    except (sqlite3.Error, sqlite3.Warning, UnicodeError, OverflowError) as wrong:
        raise _refused(path.name, wrong) from None


def _from_duckdb(sql: str, path: Path | None) -> Iterator[pa.Table]:
    duckdb = optional_import("database", "duckdb", "files")
    settings = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
    settings |= {} if path is None else {"enable_external_access": "false"}  # no file but the one that was named
    try:
        opened = duckdb.connect(":memory:" if path is None else str(path), read_only=path is not None, config=settings)
        with closing(opened):
            statements = opened.extract_statements(sql)
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                raise ValueError(f"sql: expected one query that reads (select ...), got {short(sql, ECHO)}")
            opened.execute("set python_enable_replacements = false")  # no variable of this program is a table
            relation = opened.sql(sql)
            new = hasattr(relation, "to_arrow_reader")  # from DuckDB 2 on
            reader = (relation.to_arrow_reader if new else relation.fetch_arrow_reader)(_ROWS)
            yield _plain(reader.schema.empty_table())
            for batch in reader:
                yield _plain(pa.Table.from_batches([batch]))
    except duckdb.Error as wrong:
        raise _refused("DuckDB" if path is None else path.name, wrong) from None


def _plain(table: pa.Table) -> pa.Table:
    """Decimal numbers as floats."""
    kinds = [pa.float64() if pa.types.is_decimal(field.type) else field.type for field in table.schema]
    return table.cast(pa.schema(list(zip(table.column_names, kinds, strict=True))))


def _from_server(sql: str, address: str) -> pa.Table:
    sqlalchemy = optional_import("database", "sqlalchemy", "files")
    first = {**dict.fromkeys(("mysql", "mariadb"), "set transaction read only"), "sqlite": "pragma query_only=1"}
    try:
        engine = sqlalchemy.create_engine(address, execution_options={"postgresql_readonly": True})
        with engine.connect() as opened:
            if engine.dialect.name in first:
                opened.exec_driver_sql(first[engine.dialect.name])
            answer = opened.exec_driver_sql(sql)
            table = _table([tuple(row) for row in answer], list(answer.keys()))
            opened.rollback()
        return table
    except (sqlalchemy.exc.SQLAlchemyError, ImportError) as wrong:
        raise _refused(address.partition(":")[0], wrong) from None


def _table(rows: list[tuple[Any, ...]], names: list[str]) -> pa.Table:
    """Rows of a database; decimal numbers are floats."""
    frame = pd.DataFrame.from_records(rows, columns=names, coerce_float=True)
    return pa.Table.from_pandas(storable(frame), preserve_index=False)
