"""A real Cassandra for tests: one that is named, or one that is started."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from caches.tiers.cassandra_connection import PROTOCOL
from tests.servers import free_port, running

KEYSPACE = "setpoint_test"
START_SECONDS = 180.0
STATEMENT_SECONDS = 60.0  # to make or drop tables, on a busy machine


@contextmanager
def cassandra_keyspace(folder: Path) -> Iterator[str]:
    """URL of an empty keyspace, dropped in the end: on SETPOINT_TEST_CASSANDRA=host:port, or on the `cassandra` of the
    PATH. Without either, or without the driver, the test is skipped."""
    pytest.importorskip("cassandra", reason='no driver for Cassandra: pip install "setpoint[cassandra]" brings one')
    named, binary = os.environ.get("SETPOINT_TEST_CASSANDRA"), shutil.which("cassandra")
    if named:
        host, _, port = named.partition(":")
        with keyspace_on(host, int(port or 9042)) as url:
            yield url
    elif binary:
        with cassandra_running(binary, folder) as port_here, keyspace_on("127.0.0.1", port_here) as url:
            yield url
    else:
        pytest.skip("no Cassandra here: neither SETPOINT_TEST_CASSANDRA=host:port nor a `cassandra` on the PATH")


@contextmanager
def keyspace_on(host: str, port: int) -> Iterator[str]:
    with session_on(host, port) as session:
        session.execute(f"DROP KEYSPACE IF EXISTS {KEYSPACE}", timeout=STATEMENT_SECONDS)
        replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        session.execute(f"CREATE KEYSPACE {KEYSPACE} WITH replication = {replication}", timeout=STATEMENT_SECONDS)
        try:
            yield f"cassandra://{host}:{port}/{KEYSPACE}"
        finally:
            session.execute(f"DROP KEYSPACE {KEYSPACE}", timeout=STATEMENT_SECONDS)


@contextmanager
def session_on(host: str, port: int) -> Iterator[Any]:
    from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
    from cassandra.policies import RoundRobinPolicy

    profile = ExecutionProfile(load_balancing_policy=RoundRobinPolicy(), request_timeout=STATEMENT_SECONDS)
    cluster = Cluster([host], port, protocol_version=PROTOCOL, execution_profiles={EXEC_PROFILE_DEFAULT: profile})
    try:
        yield cluster.connect()
    finally:
        cluster.shutdown()


@contextmanager
def cassandra_running(binary: str, folder: Path) -> Iterator[int]:
    """Port of a node that is alone."""
    port, storage = free_port(), free_port()
    settings = folder / "cassandra.yaml"
    settings.write_text(
        "cluster_name: setpoint\n"
        "num_tokens: 1\n"
        "partitioner: org.apache.cassandra.dht.Murmur3Partitioner\n"
        "commitlog_sync: periodic\n"
        "commitlog_sync_period_in_ms: 10000\n"
        "endpoint_snitch: SimpleSnitch\n"
        "auto_snapshot: false\n"
        f"listen_address: 127.0.0.1\nrpc_address: 127.0.0.1\nnative_transport_port: {port}\nstorage_port: {storage}\n"
        "seed_provider:\n"
        "  - class_name: org.apache.cassandra.locator.SimpleSeedProvider\n"
        f'    parameters: [{{seeds: "127.0.0.1:{storage}"}}]\n',
        encoding="utf-8",
    )
    options = {"config": settings.as_uri(), "storagedir": str(folder), "jmx.local.port": str(free_port())}
    command = [binary, "-f", "-R", *(f"-Dcassandra.{name}={value}" for name, value in options.items())]
    with running(command, folder, lambda: is_up(port), START_SECONDS):
        yield port


def is_up(port: int) -> bool:
    from cassandra.cluster import NoHostAvailable

    try:
        with session_on("127.0.0.1", port):
            return True
    except NoHostAvailable:
        return False
