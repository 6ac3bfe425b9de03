"""ServeGen's arrival rates and token lengths per client (Alibaba, arXiv 2505.09999), as two CSV tables.

Rates: `t_s` (start of a window of ten minutes), `client`, `rate_rps`. Lengths: `t_s` (start of a window of
six hours), `client`, `in_p50`, `in_p95`, `out_p50`, `out_p95` (tokens). Other columns are not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from caches.errors import InputError
from traces.csv_tables import CsvShape, TextTable, csv_tables
from traces.per_key import Int64Array
from traces.reader import ReadOptions
from traces.streams import uncompressed_name
from traces.trace import FloatArray

RATE_WINDOW_SECONDS = 600
LENGTH_WINDOW_SECONDS = 21_600
_LENGTH_COLUMNS = ("in_p50", "in_p95", "out_p50", "out_p95")


@dataclass(frozen=True)
class ArrivalRates:
    """Requests per second by client and window of ten minutes; a pair that is missing had no traffic.

    window: number of the row's window from time 0. Rows of one shape (rows,).
    """

    name: str
    window: Int64Array
    client: Int64Array
    rate_rps: FloatArray

    @property
    def days(self) -> float:
        """From time 0 to the end of the last window with traffic."""
        return float((self.window.max() + 1) * RATE_WINDOW_SECONDS / 86400)

    def expected_requests(self, start_window: int, stop_window: int) -> FloatArray:
        """Mean number of requests of each window, all clients together; shape (stop - start,)."""
        inside = (self.window >= start_window) & (self.window < stop_window)
        rps = np.bincount(
            self.window[inside] - start_window, self.rate_rps[inside], minlength=stop_window - start_window
        )
        return np.asarray(rps, dtype=np.float64) * RATE_WINDOW_SECONDS


@dataclass(frozen=True)
class TokenLengths:
    """Median and 95th percentile of prompt and output tokens by client and window of six hours.

    window: number of the row's window from time 0. quantiles: shape (rows, 4), columns prompt p50, prompt
    p95, output p50, output p95.
    """

    name: str
    window: Int64Array
    client: Int64Array
    quantiles: FloatArray


@dataclass(frozen=True)
class Lognormal:
    """`sigma` is the standard deviation of the natural logarithm; values above `highest` count as that."""

    median: float
    sigma: float
    highest: float


@dataclass(frozen=True)
class LengthFit:
    """Distributions of prompt and output tokens, and the share of the requests whose client has lengths."""

    prompt: Lognormal
    output: Lognormal
    known_share: float


def read_rates(path: Path) -> ArrivalRates:
    """Raises InputError naming file, line and field for anything but finite rates from 0 on."""
    windows, clients, rates = [], [], []
    for table in _tables(path, ("t_s", "client", "rate_rps")):
        windows.append(_windows(table, RATE_WINDOW_SECONDS))
        clients.append(table.integers("client"))
        rates.append(_at_least(table, "rate_rps", 0.0))
    return ArrivalRates(
        uncompressed_name(path), np.concatenate(windows), np.concatenate(clients), np.concatenate(rates)
    )


def read_lengths(path: Path) -> TokenLengths:
    """Raises InputError naming file, line and field for quantiles below 1 or a p95 below its p50."""
    windows, clients, quantiles = [], [], []
    for table in _tables(path, ("t_s", "client", *_LENGTH_COLUMNS)):
        windows.append(_windows(table, LENGTH_WINDOW_SECONDS))
        clients.append(table.integers("client"))
        columns = [_at_least(table, name, 1.0) for name in _LENGTH_COLUMNS]
        for p50, p95 in ((0, 1), (2, 3)):
            _refuse(table, _LENGTH_COLUMNS[p95], columns[p95] < columns[p50], "a number from the p50 on")
        quantiles.append(np.column_stack(columns))
    return TokenLengths(
        uncompressed_name(path), np.concatenate(windows), np.concatenate(clients), np.concatenate(quantiles)
    )


def fit_lengths(lengths: TokenLengths, rates: ArrivalRates, start_window: int, stop_window: int) -> LengthFit:
    """Lognormals for the prompt and output tokens of the requests in the rate windows [start, stop).

    Each row of `lengths` is taken as a lognormal with its median and 95th percentile and weighted by the
    client's requests in its six hours. The fit has the mean and the variance of the mixture's logarithm:
    mu = sum w mu_i, sigma^2 = sum w (sigma_i^2 + (mu_i - mu)^2). Clients without lengths have no weight.
    The largest 95th percentile of the rows cuts the tail, which is longer than any real one where clients
    differ much. Raises InputError if no row has any weight.
    """
    weight = _row_weights(lengths, rates, start_window, stop_window)
    total = float(weight.sum())
    if total <= 0:
        raise InputError(
            f"{lengths.name}: got no client of {rates.name} in these days, expected lengths of its clients"
        )
    in_p50, in_p95, out_p50, out_p95 = lengths.quantiles.T
    share = weight / total
    everyone = float(rates.expected_requests(start_window, stop_window).sum()) / RATE_WINDOW_SECONDS
    return LengthFit(_fit(in_p50, in_p95, share), _fit(out_p50, out_p95, share), total / everyone)


def _row_weights(lengths: TokenLengths, rates: ArrivalRates, start_window: int, stop_window: int) -> FloatArray:
    inside = (rates.window >= start_window) & (rates.window < stop_window)
    per_length_window = LENGTH_WINDOW_SECONDS // RATE_WINDOW_SECONDS
    clients = int(max(rates.client.max(), lengths.client.max())) + 1
    rate_cell = rates.window[inside] // per_length_window * clients + rates.client[inside]
    length_cell = lengths.window * clients + lengths.client
    cells = int(max(rate_cell.max(initial=0), length_cell.max())) + 1
    weights: FloatArray = np.bincount(rate_cell, rates.rate_rps[inside], minlength=cells)[length_cell]
    return weights


def _fit(p50: FloatArray, p95: FloatArray, weight: FloatArray) -> Lognormal:
    z95 = 1.6448536269514722  # the 95th percentile of a standard normal
    mu = np.log(p50)
    sigma = np.log(p95 / p50) / z95
    mean = float((weight * mu).sum())
    variance = float((weight * (sigma**2 + (mu - mean) ** 2)).sum())
    return Lognormal(float(np.exp(mean)), float(np.sqrt(variance)), float(p95[weight > 0].max()))


def _tables(path: Path, required: tuple[str, ...]) -> Iterator[TextTable]:
    empty = True
    for table in csv_tables(path, CsvShape(), ReadOptions(), required):
        empty = False
        yield table
    if empty:
        raise InputError(f"{path}: got no records, expected at least one below a header {','.join(required)}")


def _windows(table: TextTable, seconds: int) -> Int64Array:
    start = table.integers("t_s")
    _refuse(table, "t_s", (start < 0) | (start % seconds != 0), f"a multiple of {seconds} from 0 on")
    _refuse(table, "client", table.integers("client") < 0, "a number from 0 on")
    return start // seconds


def _at_least(table: TextTable, name: str, least: float) -> FloatArray:
    values = table.numbers(name)
    _refuse(table, name, ~(np.isfinite(values) & (values >= least)), f"a finite number from {least:g} on")
    return values


def _refuse(table: TextTable, name: str, bad: np.ndarray[tuple[int], np.dtype[np.bool_]], expected: str) -> None:
    if bad.any():
        raise table.bad(int(np.argmax(bad)), name, expected)
