"""The trade-off of the regression study: what each family of losses gains in the region for what it costs overall."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

COLORS = {
    "matching Exp": "#00695c",
    "matching interval": "#26a69a",
    "re-weighted MSE": "#d84315",
    "re-weighted by Exp": "#ff8a65",
    "pinball": "#5e35b1",
    "MSE plus a constant": "#757575",
}


def curve(rows, family):
    """The rows of one seed or mean that belong to a family, by strength; all but pinball begin with MSE."""
    names = [name for name in rows.index if name.rpartition(",")[0] == family]
    return rows.loc[names if family == "pinball" else ["MSE", *names]]


def at_equal_cost(records, factor):
    """Records by family, at the strength where the error of all is ``factor`` times that of MSE.

    Between two strengths that were run the errors are interpolated; a family that starts above that cost (pinball may)
    is taken at its weakest strength, one that never reaches it at its strongest.
    """
    found = []
    for seed, rows in records.groupby("seed"):
        rows = rows.set_index("method")
        wanted = factor * rows.loc["MSE", "error_all"]
        for family in COLORS:
            line = curve(rows, family)
            cost = line["error_all"].to_numpy()
            beyond = int(np.argmax(cost >= wanted)) if (cost >= wanted).any() else len(cost) - 1
            before = max(beyond - 1, 0)
            share = 1.0 if beyond == before else min((wanted - cost[before]) / (cost[beyond] - cost[before]), 1.0)
            row = {"method": family, "seed": seed}
            for metric in ("error_all", "error_decile", "error_chosen"):
                values = line[metric].to_numpy()
                row[metric] = values[before] + share * (values[beyond] - values[before])
            found.append(row)
    return pd.DataFrame(found)


def cost_pairs():
    """Both matching families against each other family."""
    ours = ("matching Exp", "matching interval")
    return [(one, other) for one in ours for other in COLORS if other not in ours]


def draw(records, path):
    """Error in the decile, and among the chosen tenth, over the error of all; a line a family, a dot a strength."""
    names = list(records["data"].unique())
    figure = Figure(figsize=(10, 4.2 * len(names)), layout="constrained")
    axes = np.atleast_2d(figure.subplots(len(names), 2))
    metrics = ("error_all", "error_decile", "error_chosen")
    shown = (
        ("error_decile", "true top decile", 0.3, 1.1),
        ("error_chosen", "tenth with the highest predictions", 0.8, 2.4),
    )
    for row, name in zip(axes, names, strict=True):
        means = records[records["data"] == name].groupby("method", sort=False)[list(metrics)].mean()
        for axis, (metric, words, low, high) in zip(row, shown, strict=True):
            for family, color in COLORS.items():
                line = curve(means, family)
                axis.plot(line["error_all"], line[metric], "o-", color=color, markersize=4, label=family)
            axis.plot(*means.loc["MSE", ["error_all", metric]], "k*", markersize=12, label="MSE")
            axis.set(xlabel="squared error of all", ylabel=f"squared error: {words}", title=name)
            middle = means.loc["MSE"]
            axis.set_xlim(middle["error_all"] * 0.9, middle["error_all"] * 2.2)  # beyond lies what nobody wants
            axis.set_ylim(middle[metric] * low, middle[metric] * high)
            axis.grid(alpha=0.3)
    axes[0, 0].legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
