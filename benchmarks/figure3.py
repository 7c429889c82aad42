"""Figure 3 of the NONA paper: four surfaces over the plane, each learned by four methods.

    python benchmarks/figure3.py --out figure3.png

Inputs are uniform on [-1, 1]^2, targets lie in [0, 1] with a little noise. Linear regression and k-NN see the inputs;
NONA, with and without SoftStep, trains a small encoder whose batch is its own bank, self masked by id. At test time the
bank is the training rows. Validation rows choose k-NN's settings and stop the training; test errors are against the
surface itself, without noise. Every method is given the same rows.
"""

import copy
import itertools
import math
import time
from collections.abc import Callable

import numpy as np
import torch
from sklearn.linear_model import LinearRegression
from sklearn.neighbors import KNeighborsRegressor
from torch import Tensor, nn

from vicinal.heads import NONA
from vicinal.masks import SoftStep

WIDTH = 8
"""Width of the embeddings."""


def linear(x: np.ndarray) -> np.ndarray:
    return 0.5 + 0.3 * x[:, 0] + 0.2 * x[:, 1]


def radial(x: np.ndarray) -> np.ndarray:
    return np.hypot(x[:, 0], x[:, 1]) / math.sqrt(2)


def spiral(x: np.ndarray) -> np.ndarray:
    return 0.5 + 0.5 * np.sin(np.arctan2(x[:, 1], x[:, 0]) + 8 * np.hypot(x[:, 0], x[:, 1]))


def checkerboard(x: np.ndarray) -> np.ndarray:
    return (np.floor(2 * x).sum(axis=1) % 2).astype(float)


SURFACES = {surface.__name__: surface for surface in (linear, radial, spiral, checkerboard)}

Rows = tuple[np.ndarray, np.ndarray]
Predict = Callable[[np.ndarray], np.ndarray]


def draw(surface: Callable, n: int, noise: float, rng: np.random.Generator) -> Rows:
    """Inputs [n, 2] and noisy targets [n]."""
    x = rng.uniform(-1, 1, size=(n, 2))
    return x, surface(x) + noise * rng.standard_normal(n)


def linear_regression(train: Rows, validation: Rows, seed: int) -> Predict:
    return LinearRegression().fit(*train).predict


def knn(train: Rows, validation: Rows, seed: int) -> Predict:
    """The paper's grid, chosen on the validation rows."""
    grid = itertools.product((3, 5, 7), (1, 2), ("uniform", "distance"))
    fitted = [KNeighborsRegressor(k, p=p, weights=weights).fit(*train) for k, p, weights in grid]
    x, y = validation
    return min(fitted, key=lambda model: np.mean((model.predict(x) - y) ** 2)).predict


def encoder() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, WIDTH))


def tensors(rows: Rows) -> tuple[Tensor, Tensor]:
    return torch.tensor(rows[0], dtype=torch.float32), torch.tensor(rows[1], dtype=torch.float32)


class Neighbors(nn.Module):
    """An encoder and a NONA head; ``bank`` are inputs with their labels."""

    def __init__(self, mask: nn.Module | None) -> None:
        super().__init__()
        self.encode = encoder()
        self.head = NONA(mask=mask)

    def forward(self, x: Tensor, bank: tuple[Tensor, Tensor], ids: Tensor | None = None) -> Tensor:
        """Predictions; with ``ids`` the rows are their own bank and self is masked."""
        inputs, labels = bank
        queries = self.encode(x)
        keys = queries if ids is not None else self.encode(inputs)
        return self.head(queries, keys, labels, query_ids=ids, bank_ids=ids)

    def error(self, rows: tuple[Tensor, Tensor], bank: tuple[Tensor, Tensor]) -> float:
        """Mean squared error of ``rows`` with ``bank`` as neighbors."""
        with torch.no_grad():
            return float((self(rows[0], bank) - rows[1]).square().mean())


def nona(train: Rows, validation: Rows, seed: int, *, mask: Callable = lambda: None, epochs: int = 300) -> Predict:
    """Adam on batches that are their own bank; the weights of the best epoch on validation rows are kept."""
    torch.manual_seed(seed)
    model, bank, held_out = Neighbors(mask()), tensors(train), tensors(validation)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    best, best_state, patience = math.inf, model.state_dict(), 0
    for _ in range(epochs):
        for batch in torch.randperm(len(bank[0])).split(128):
            x, y = bank[0][batch], bank[1][batch]
            loss = (model(x, (x, y), ids=batch) - y).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        error, patience = model.error(held_out, bank), patience + 1
        if error < best:
            best, best_state, patience = error, copy.deepcopy(model.state_dict()), 0
        if patience >= 40:
            break
    model.load_state_dict(best_state)

    @torch.no_grad()
    def predict(x: np.ndarray) -> np.ndarray:
        return model(torch.tensor(x, dtype=torch.float32), bank).numpy()

    return predict


def nona_softstep(train: Rows, validation: Rows, seed: int, *, epochs: int = 300) -> Predict:
    return nona(train, validation, seed, mask=lambda: SoftStep(WIDTH), epochs=epochs)


METHODS = {"linear regression": linear_regression, "k-NN": knn, "NONA": nona, "NONA + SoftStep": nona_softstep}


def run(surface: Callable, seed: int, rows: int, noise: float, methods: dict = METHODS) -> dict[str, tuple]:
    """(test MSE, predict) of each method on one draw of a surface."""
    rng = np.random.default_rng(seed)
    train, validation = draw(surface, rows, noise, rng), draw(surface, rows // 4, noise, rng)
    x, y = draw(surface, 3000, 0.0, rng)
    fitted = {name: fit(train, validation, seed) for name, fit in methods.items()}
    return {name: (float(np.mean((predict(x) - y) ** 2)), predict) for name, predict in fitted.items()}


def draw_figure(path: str, first: dict[str, dict[str, tuple]], points: int = 100) -> None:
    """Rows: surfaces; columns: the surface, then each method's prediction of it with its test MSE."""
    from matplotlib.figure import Figure

    axis = (2 * np.arange(points) + 1) / points - 1  # centers of the pixels
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    figure = Figure(figsize=(2.3 * (1 + len(METHODS)), 2.4 * len(first)), layout="constrained")
    axes = figure.subplots(len(first), 1 + len(METHODS), squeeze=False)
    for row, (name, results) in zip(axes, first.items(), strict=True):
        panels = [("truth", SURFACES[name](grid))]
        panels += [(f"{method}\nMSE {1000 * mse:.2f}e-3", predict(grid)) for method, (mse, predict) in results.items()]
        for ax, (title, values) in zip(row, panels, strict=True):
            shown = values.reshape(points, points)
            image = ax.imshow(shown, origin="lower", extent=(-1, 1, -1, 1), vmin=0, vmax=1, cmap="viridis")
            ax.set_title(title, fontsize=9)
            ax.set_xticks([])
            ax.set_yticks([])
        row[0].set_ylabel(name, fontsize=11)
    figure.colorbar(image, ax=axes, shrink=0.5, label="target")
    figure.savefig(path, dpi=110)


def table(errors: dict[str, dict[str, list[float]]]) -> str:
    """Mean +- sd over seeds, times 1000; the lowest mean of each surface is marked."""
    lines = ["test MSE x 1000".ljust(16) + "".join(name.rjust(21) for name in METHODS)]
    for surface, by_method in errors.items():
        means = {name: 1000 * float(np.mean(values)) for name, values in by_method.items()}
        cells = []
        for name, values in by_method.items():
            spread = f" +- {1000 * np.std(values, ddof=1):.2f}" if len(values) > 1 else ""
            mark = "*" if means[name] == min(means.values()) else " "
            cells.append(f"{means[name]:.2f}{spread}{mark}".rjust(21))
        lines.append(surface.ljust(16) + "".join(cells))
    return "\n".join(lines)


def main() -> None:
    from resumable import asked

    options = asked(__doc__, out=str, seeds=3, rows=800, noise=0.05)
    start, errors, first = time.perf_counter(), {}, {}
    for name, surface in SURFACES.items():
        runs = [run(surface, seed, options.rows, options.noise) for seed in range(options.seeds)]
        first[name] = runs[0]
        errors[name] = {method: [results[method][0] for results in runs] for method in METHODS}
    print(table(errors))
    print(f"* lowest mean; {options.seeds} seeds, {options.rows} training rows, {time.perf_counter() - start:.0f} s")
    draw_figure(options.out, first)


if __name__ == "__main__":
    main()
