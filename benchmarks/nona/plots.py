"""The plots of docs/results/nona.md: average ranks with their critical difference, and changes by set."""

from pathlib import Path

import numpy as np

from vicinal.evaluation import Significance


def difference_plot(found: Significance, path: Path, title: str) -> None:
    """The critical-difference diagram: average ranks, and bars over methods that Nemenyi's test does not part."""
    from matplotlib.figure import Figure

    order = np.argsort(found.ranks)
    ranks, names = np.array(found.ranks)[order], [found.methods[i] for i in order]
    half = (len(names) + 1) // 2
    figure = Figure(figsize=(6.4, 1.5 + 0.24 * half), layout="constrained")
    axes = figure.subplots()
    low, high = 1, len(names)
    for place, (rank, name) in enumerate(zip(ranks, names, strict=True)):
        left = place < half
        level = -0.9 - 0.55 * (place if left else len(names) - 1 - place)
        end = low - 0.15 if left else high + 0.15
        axes.plot([rank, rank, end], [0, level, level], color="#4d4d4d", linewidth=0.9)
        axes.text(
            end,
            level,
            f"{name} {rank:.2f}" if left else f"{rank:.2f} {name}",
            fontsize=9,
            va="center",
            ha="right" if left else "left",
        )
    bars, level = [], -0.22
    for i in range(len(ranks)):
        j = max(k for k in range(len(ranks)) if ranks[k] - ranks[i] < found.critical_difference)
        if j > i and not any(a <= i and j <= b for a, b in bars):
            bars.append((i, j))
            axes.plot(
                [ranks[i] - 0.04, ranks[j] + 0.04], [level, level], color="#00796b", linewidth=3, solid_capstyle="round"
            )
            level -= 0.2
    axes.plot([low, high], [0, 0], color="black", linewidth=1)
    for tick in range(low, high + 1):
        axes.plot([tick, tick], [0, 0.12], color="black", linewidth=1)
        axes.text(tick, 0.2, str(tick), ha="center", va="bottom", fontsize=8)
    axes.plot([low, low + found.critical_difference], [0.95, 0.95], color="black", linewidth=1.4)
    axes.text(
        low + found.critical_difference + 0.06,
        0.95,
        f"critical difference {found.critical_difference:.2f}",
        va="center",
        fontsize=8,
    )
    axes.set(xlim=(low - 0.7, high + 0.7), ylim=(-1.1 - 0.55 * half, 1.3))
    axes.set_title(title, fontsize=10)
    axes.axis("off")
    figure.savefig(path, dpi=130)


def change_plot(lines: dict[str, dict[str, float]], path: Path, title: str) -> None:
    """Relative changes by set, one mark a line of ``lines`` (label -> set -> per cent)."""
    from matplotlib.figure import Figure

    sets = list(dict.fromkeys(name for values in lines.values() for name in values))
    sets.sort(key=lambda name: np.mean([values[name] for values in lines.values() if name in values]))
    figure = Figure(figsize=(6.4, 1.3 + 0.26 * len(sets)), layout="constrained")
    axes = figure.subplots()
    for (label, values), color, mark in zip(
        lines.items(), ("#9e9e9e", "#00796b", "#e64a19", "#3949ab"), "osD^", strict=False
    ):
        shown = [name for name in sets if name in values]
        axes.scatter(
            [values[n] for n in shown],
            [sets.index(n) for n in shown],
            color=color,
            marker=mark,
            s=34,
            label=label,
            zorder=3,
        )
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_yticks(range(len(sets)), sets, fontsize=8)
    axes.invert_yaxis()
    axes.grid(axis="x", color="#e0e0e0")
    axes.set_xlabel("change of the mean squared error, %")
    axes.set_title(title, fontsize=10)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=130)
