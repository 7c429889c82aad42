"""Tables and figure of docs/results/decisions.md from the lines of decisions.py."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from protocol import holm, markdown

from vicinal.evaluation.statistics import bootstrap_interval, friedman, paired_t, wilcoxon

KEY = ["set", "seed", "model", "loss"]
OVERLAP = 0.2 / 0.6  # test rows / training rows
WIDEST = 40  # per cent, of the figure
MODELS = ("linear", "network")
MARK = "<!-- decisions: {name} -->"
LOG_LOSS = "log-loss of the threshold"  # whose level has no unit: as an order it says nothing


def whole(results):
    """The lines of the splits that all sets and losses have."""
    counts = results.groupby("seed").size()
    return results[results["seed"].isin(counts.index[counts == counts.max()])]


def cases(results):
    """Names of the decisions."""
    return [column.removesuffix(", plain") for column in results.columns if column.endswith(", plain")]


def money(results, model, case, kind):
    """Money lost ``[sets, losses]``, mean over splits; the estimator stands beside the networks."""
    models = [model, "neighbors"] if model == "network" else [model]
    part = results[results["model"].isin(models)]
    part = part.assign(loss=part["loss"].where(part["model"] != "neighbors", "neighbors"))
    wide = part.pivot_table(index="set", columns="loss", values=f"{case}, {kind}", sort=False)
    return wide.drop(columns=LOG_LOSS) if case.startswith("order") else wide


def change(values, reference):
    """Logarithm of the money of each loss over that of the reference, by set."""
    return np.log(values.div(reference, axis=0))


def per_cent(logarithm):
    """With a sign."""
    return f"{100 * np.expm1(logarithm):+.0f}".replace("-0", "0").replace("+0", "0")


def all_losses(results, model):
    """Money of each loss against plain squares, in per cent, mean over sets: as it is, and with a shift."""
    columns = {}
    for case in cases(results):
        plain = money(results, model, case, "plain")
        means = {
            kind: change(money(results, model, case, kind), plain["squares"]).mean() for kind in ("plain", "shifted")
        }
        columns[case] = means["plain"].map(per_cent)
        if not case.startswith("tenth"):
            columns[case] += ", " + means["shifted"].map(per_cent)
        if LOG_LOSS in columns[case] and not case.startswith("tenth"):
            columns[case][LOG_LOSS] = per_cent(means["shifted"][LOG_LOSS])
    names = list(dict.fromkeys(results["loss"].replace("as it is", "neighbors")))
    frame = pd.DataFrame(columns).reindex([name for name in names if name in columns[case].index])
    return frame.fillna("").reset_index(names="loss")


def rivals(results, model, case):
    """Money lost of each shifted loss ``[sets, seeds]``; of squares and neighbors as they are, too."""
    found = {}
    for kind in ("shifted", "plain"):
        for (one, loss), part in results.groupby(["model", "loss"], sort=False):
            name = "neighbors" if one == "neighbors" else loss
            if one not in ((model, "neighbors") if model == "network" else (model,)):
                continue
            if case.startswith("order") and name == LOG_LOSS:
                continue
            values = part.pivot_table(index="set", columns="seed", values=f"{case}, {kind}", sort=False)
            if kind == "shifted":
                found[name] = values
            elif name in ("squares", "neighbors") and not case.startswith("tenth"):
                found[f"{name}, no shift"] = values
    return found


def against_squares(results, model):
    """Each shifted loss against shifted squares: mean change, interval and p over sets, sets that differ by splits."""
    lines = []
    for case in cases(results):
        values = rivals(results, model, case)
        squares = values.pop("squares")
        for loss, splits in values.items():
            apart = np.log(splits.mean(axis=1) / squares.mean(axis=1))
            tests = [paired_t(splits.loc[name], squares.loc[name], overlap=OVERLAP) for name in squares.index]
            low, high = bootstrap_interval(apart.to_numpy())
            line = {"case": case, "loss": loss, "change": apart.mean(), "low": low, "high": high}
            line["p"] = wilcoxon(apart, np.zeros(len(apart))).p_value
            line["better"] = sum(one.p_value < 0.05 and one.statistic < 0 for one in tests)
            line["worse"] = sum(one.p_value < 0.05 and one.statistic > 0 for one in tests)
            lines.append(line)
    frame = pd.DataFrame(lines)
    frame["p_holm"] = frame.groupby("case")["p"].transform(holm)
    return frame


def shown(frame):
    """The frame of :func:`against_squares` as a table: a row a loss, a column a decision."""
    texts = [
        f"{per_cent(row.change)} ({per_cent(row.low)} to {per_cent(row.high)}), {row.better}:{row.worse}"
        for row in frame.itertuples()
    ]
    texts = [f"**{text}**" if p < 0.05 else text for text, p in zip(texts, frame["p_holm"], strict=True)]
    cells = frame.assign(text=texts).set_index(["loss", "case"])["text"]
    names = list(dict.fromkeys(frame["loss"]))
    last = [name for name in ("squares, no shift", LOG_LOSS, "neighbors", "neighbors, no shift") if name in names]
    wide = cells.unstack("case")[list(dict.fromkeys(frame["case"]))]
    return wide.reindex([name for name in names if name not in last] + last).fillna("").reset_index(names="loss")


def ranks(results):
    """Friedman's p of all shifted losses over sets, by model and decision."""
    lines = []
    for model in MODELS:
        line = {"model": model}
        for case in cases(results):
            p = friedman(money(results, model, case, "shifted").drop(columns="neighbors", errors="ignore")).p_value
            line[case] = f"{p:.3f}" if p >= 1e-3 else "< 0.001"
        lines.append(line)
    return pd.DataFrame(lines)


def write(page, results):
    """Each table between its marks in the page."""
    tables = {f"all {model}": all_losses(results, model) for model in MODELS}
    tables |= {f"tests {model}": shown(against_squares(results, model)) for model in MODELS}
    tables["friedman"] = ranks(results)
    text = page.read_text(encoding="utf-8")
    for name, table in tables.items():
        start, end = MARK.format(name=name), "<!-- end of decisions -->"
        before, _, rest = text.partition(start)
        text = f"{before}{start}\n\n{markdown(table)}\n\n{end}{rest.partition(end)[2]}"
    page.write_text(text, encoding="utf-8")


def draw(results, path):
    """A panel a decision: money against shifted squares with its interval over sets, by loss and model."""
    colors = {"linear": "#757575", "network": "#00695c"}
    frames = {model: against_squares(results, model) for model in MODELS}
    order = list(shown(frames["network"])["loss"])[::-1]
    figure = Figure(figsize=(11, 7), layout="constrained")
    panels = figure.subplots(2, 3, sharey=True).T.flat
    for case, axes in zip(cases(results), panels, strict=True):
        axes.axvline(0, color="#bdbdbd", linewidth=1)
        for number, model in enumerate(MODELS):
            part = frames[model][frames[model]["case"] == case]
            center, low, high = (100 * np.expm1(part[name].to_numpy()) for name in ("change", "low", "high"))
            places = np.array([order.index(loss) + 0.15 - 0.3 * number for loss in part["loss"]])
            for beyond in np.flatnonzero(center > WIDEST):
                place, text = (WIDEST - 14 * number, places[beyond]), f"+{center[beyond]:.0f} >"
                axes.annotate(text, place, ha="right", va="center", color=colors[model], fontsize=8)
            reach = [center - low, high - center]
            axes.errorbar(center, places, xerr=reach, fmt="o", markersize=4, color=colors[model], label=model)
        axes.set_xlim(-WIDEST, WIDEST)
        axes.set_title(case, loc="left", fontsize=10)
        axes.set_yticks(range(len(order)), order)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper right", ncols=2, frameon=False)
    figure.supxlabel("money lost against squares with a shift, per cent; below 0 is better", fontsize=10)
    figure.savefig(path, dpi=110)
