"""The schema `setpoint` of a PostgreSQL database, for a ledger that several machines share."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import URL, Connection, Engine, create_engine, inspect, text

from caches.errors import InputError
from tuner.ledgers.tables import LEDGER, compact

SCHEMA = "setpoint"
MAKING = int.from_bytes(b"StpL")  # the number of the lock under which the schema is made
# For a network that swallows what is sent: seconds but for the last, which is milliseconds.
PATIENCE = {"connect_timeout": 5, "keepalives_idle": 10, "keepalives_interval": 5, "tcp_user_timeout": 20_000}
# Of each connection. The last two are for a daemon that hangs or is cut off while it holds the lock of all.
LIMITS_SECONDS = {"lock_timeout": 5.0, "statement_timeout": 30.0, "idle_in_transaction_session_timeout": 30.0}


def connected(url: URL) -> Engine:
    """Nothing is sent yet.

    Raises InputError where the driver is not installed.
    """
    options = [str(url.query.get("options", "")), *(f"-c {name}={value}s" for name, value in LIMITS_SECONDS.items())]
    try:
        engine = create_engine(
            url.set(drivername="postgresql+psycopg"),
            connect_args={"options": " ".join(options).strip(), **PATIENCE},
            pool_pre_ping=True,  # the server may have been restarted
            json_serializer=compact,
        )
    except ImportError as error:
        raise InputError('a ledger in PostgreSQL needs its driver: pip install "setpoint[postgres]"') from error
    return engine.execution_options(schema_translate_map={None: SCHEMA})


def found_or_made(engine: Engine, where: str, fill: Callable[[Connection], None]) -> None:
    """Of several processes that begin together one makes the schema, by `fill`.

    Raises InputError where tables of another program are in it.
    """
    with engine.connect() as connection:
        if _is_there(connection):
            return
    with engine.begin() as connection:
        connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": MAKING})
        if _is_there(connection):
            return
        if tables := inspect(connection).get_table_names(schema=SCHEMA):
            raise InputError(
                f"{where}: got a schema {SCHEMA!r} with the table {tables[0]!r}, expected a ledger of Setpoint or none"
            )
        if not inspect(connection).has_schema(SCHEMA):  # who may use one that was made for us may not make one
            connection.execute(text(f"CREATE SCHEMA {SCHEMA}"))
        fill(connection)


def _is_there(connection: Connection) -> bool:
    return inspect(connection).has_table(LEDGER.name, schema=SCHEMA)
