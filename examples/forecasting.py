"""Forecasts two time series: daily minimum temperatures and monthly sunspots.

A small network predicts the next 7 days from 60, and the next 12 months from 132. After
each epoch the program prints the error on the last fifth of the series, divided by the
error of repeating the last known value. It fails unless both networks are better than
that. The series are downloaded if they are missing. With --picture it draws the
errors, which needs matplotlib.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import millstream as ms
import numpy as np
from cartpole import adam, adam_start

BATCH = 64
HIDDEN = 64
SERIES = {
    "temperatures": (ms.DailyMinTemperaturesDataset, 60, 7),
    "sunspots": (ms.SunspotsDataset, 132, 12),
}


def generate(name, path, seed=0):
    """Writes a CSV file with a series that resembles one of the two."""
    rng = np.random.default_rng(seed)
    count, period = (3650, 365) if name == "temperatures" else (2820, 132)
    phase = 2 * np.pi * np.arange(count) / period
    noise = np.zeros(count)
    for i in range(1, count):
        noise[i] = 0.6 * noise[i - 1] + rng.normal()
    if name == "temperatures":
        values = 11 + 4 * np.cos(phase) + 2 * noise
    else:
        values = np.maximum(50 - 45 * np.cos(phase) + 8 * noise, 0)
    rows = [f"{i},{value:.1f}" for i, value in enumerate(values)]
    Path(path).write_text("\n".join(["Time,Value", *rows, ""]))


def init_params(key, context, prediction):
    """A (weights, bias) pair for each of the two layers."""
    first, second = jax.random.split(key)
    return [
        (
            jax.random.normal(first, (context, HIDDEN)) * context**-0.5,
            jnp.zeros(HIDDEN),
        ),
        (jax.random.normal(second, (HIDDEN, prediction)) * 0.01, jnp.zeros(prediction)),
    ]


def forecast(params, context):
    """The next values: the last known value, plus what the network adds to it."""
    (weights, bias), (out, shift) = params
    last = context[:, -1:]
    return last + jax.nn.relu((context - last) @ weights + bias) @ out + shift


def loss(params, batch, mask):
    """The mean squared error of the rows that are not padding."""
    error = forecast(params, batch["context"]) - batch["target"]
    return jnp.sum(error**2 * mask[:, None]) / (jnp.sum(mask) * error.shape[1])


def update(carry, batch, mask):
    """One step of Adam, and the loss before it."""
    params, moments = carry
    value, grads = jax.value_and_grad(loss)(params, batch, mask)
    return adam(params, moments, grads), value


def train(name, epochs, seed=0, **options):
    """Trains on one series; returns the relative error on its end after each epoch.

    ``options`` are those of the data set, such as ``data_path``.
    """
    kind, context, prediction = SERIES[name]
    options |= {"context_length": context, "prediction_length": prediction}
    train = kind("train", **options).as_array_dict()
    test = kind("test", **options).as_array_dict()
    mean, deviation = train["context"].mean(), train["context"].std()

    def normalise(sample, mask):
        return jax.tree.map(lambda x: (x - mean) / deviation, sample)

    loader = ms.DataLoader(
        [
            ms.ArraySampleSource(train, ordering="shuffle"),
            ms.MapTransform(normalise),
            ms.BatchTransform(BATCH),
        ]
    )
    valid = np.ones(len(test["target"]), bool)
    test = normalise(test, valid)
    repeated = float(np.mean((test["context"][:, -1:] - test["target"]) ** 2))

    params = init_params(jax.random.key(seed), context, prediction)
    state, carry = loader.init_state(seed), (params, adam_start(params))
    evaluate = jax.jit(loss)
    errors = []
    for epoch in range(epochs):
        state, carry, losses = loader.scan_epoch(state, carry, update)
        error = float(evaluate(carry[0], test, valid))
        errors.append((error / repeated) ** 0.5)
        print(
            f"{name}, epoch {epoch}: loss {losses.mean():.3f}, error {errors[-1]:.3f}"
        )
    return errors


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    for name in SERIES:
        parser.add_argument(f"--{name}", help="a CSV file, instead of the download")
    parser.add_argument(
        "--generated",
        nargs="+",
        choices=SERIES,
        default=[],
        help="use generated series instead of the real ones",
    )
    parser.add_argument("--picture", help="write the learning curves to this file")
    arguments = parser.parse_args()
    curves = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in SERIES:
            path, label = getattr(arguments, name), name
            if name in arguments.generated:
                path, label = Path(folder) / f"{name}.csv", f"{name} (generated)"
                generate(name, path)
            errors = train(name, arguments.epochs, arguments.seed, data_path=path)
            curves[label] = range(1, len(errors) + 1), errors
    if arguments.picture:
        from curves import draw

        draw(
            arguments.picture,
            curves,
            title="Forecasts of two time series",
            x="epochs",
            y="relative RMSE on the last fifth",
            lines={"repeating the last value": 1},
        )
    for label, (_, errors) in curves.items():
        if errors[-1] >= 1:
            raise SystemExit(f"{label}: expected an error below 1, found {errors[-1]}")


if __name__ == "__main__":
    main()
