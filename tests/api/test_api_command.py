"""`setpoint api`: where it listens, when it does not start, and TLS."""

from __future__ import annotations

import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from api.serving import tls_of
from caches.errors import InputError
from tests.api.rest.history import CACHE, Told, write
from tuner.api_sections import ApiConfig
from tuner.config import load_tuner_config
from tuner.ledgers.sql import open_ledger

COMMAND = (str(Path(sys.executable).parent / "setpoint"), "api")
KEYS = '[[api.keys]]\nname = "ana"\nsha256 = "' + "0" * 64 + '"\n'


@contextmanager
def started(folder: Path, *options: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address that it says. It stops when it is asked to, and says nothing of it."""
    process = subprocess.Popen(
        (*COMMAND, *options), cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("Page: "), process.communicate(timeout=30)
        yield line.removeprefix("Page: ").strip(), process
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors.splitlines()[1:]) == (0, [])


def test_it_shows_a_ledger_until_it_is_stopped(tmp_path: Path) -> None:
    ledger = open_ledger("sqlite:///here.db", tmp_path)
    write(ledger, Told(intervals=3, lead_in=1))
    ledger.close()
    with started(tmp_path, "--ledger", "sqlite:///here.db", "--port", "0") as (address, process):
        assert httpx.get(f"{address}v1/caches").json()["items"][0]["name"] == CACHE
        assert "No interval yet" not in httpx.get(address).text
        stream = httpx.stream("GET", f"{address}v1/events")
        with stream as answer:  # it is still open when the server is told to stop
            lines = answer.iter_lines()
            assert next(lines) == "retry: 3000"
            process.send_signal(signal.SIGTERM)
            assert {line for line in lines if line.startswith("event: ")} <= {"event: revision"}


def test_with_a_certificate_it_speaks_https_only(tmp_path: Path) -> None:
    certificate = certified(tmp_path)
    (tmp_path / "setpoint.toml").write_text(f'[api]\nport = 0\ntls_certificate = "{certificate}"\n')
    with started(tmp_path) as (address, _):
        assert address.startswith("https://127.0.0.1:")
        answer = httpx.get(f"{address}healthz", verify=ssl.create_default_context(cafile=str(certificate)))
        assert answer.json() == {"status": "ok"}
        assert answer.headers["strict-transport-security"]
        with pytest.raises(httpx.HTTPError):
            httpx.get(address.replace("https", "http") + "healthz")


def certified(folder: Path) -> Path:
    """A file with a key and a certificate for 127.0.0.1, signed by itself."""
    key, path, now = ec.generate_private_key(ec.SECP256R1()), folder / "tls.pem", datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "setpoint")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    plain, encoding = serialization.NoEncryption(), serialization.Encoding.PEM
    path.write_bytes(
        key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, plain) + certificate.public_bytes(encoding)
    )
    return path


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('[api]\nhost = "0.0.0.0"\n', "keys"),
        ("[api]\nprot = 80\n", "port"),
        ('[[api.keys]]\nname = "ana"\nsha256 = "the key itself"\n', "SHA-256"),
        ('[api]\ntls_key = "key.pem"\n', "tls_certificate"),
        (f'[api]\nhost = "0.0.0.0"\n{KEYS}', None),
    ],
)
def test_what_the_settings_have_to_say(tmp_path: Path, text: str, wanted: str | None) -> None:
    file = tmp_path / "setpoint.toml"
    file.write_text(text)
    if wanted is None:
        assert load_tuner_config(file, tmp_path, {}, {}).api.host == "0.0.0.0"
        return
    with pytest.raises(InputError, match=wanted) as caught:
        load_tuner_config(file, tmp_path, {}, {})
    assert "the key itself" not in str(caught.value)


def test_an_option_that_opens_it_to_others_needs_keys_too(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="keys"):
        load_tuner_config(None, tmp_path, {}, {"api.host": "0.0.0.0"})


def test_files_of_tls_that_are_not_there(tmp_path: Path) -> None:
    certificate = tmp_path / "tls.pem"
    with pytest.raises(InputError, match="tls_certificate"):
        tls_of(ApiConfig(tls_certificate=certificate), {})
    certificate.touch()
    with pytest.raises(InputError, match="tls_key"):
        tls_of(ApiConfig(tls_certificate=certificate, tls_key=tmp_path / "none"), {})
    with pytest.raises(InputError, match="PASSWORD is not set"):
        tls_of(ApiConfig(tls_certificate=certificate, tls_password_env="PASSWORD"), {})
    found = tls_of(ApiConfig(tls_certificate=certificate, tls_password_env="PASSWORD"), {"PASSWORD": "secret"})
    assert found is not None
    assert "secret" not in repr(found)
    assert tls_of(ApiConfig(), {}) is None
