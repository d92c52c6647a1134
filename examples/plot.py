#!/usr/bin/env python3
"""Pictures of the trainer's and the strategies' files, as NAME.svg and NAME.png (Debian: python3-matplotlib).

    plot.py training NAME METRICS...            loss and accuracy of trainings over their updates
    plot.py accuracy NAME TITLE LABEL=METRICS... [TITLE LABEL=METRICS...]   accuracies against time
    plot.py exchange NAME FILE                  time per step against ranks: lines "place,strategy,ranks,ms"

METRICS are files of train --metrics, CSV or JSON lines.
"""
import csv
import json
import sys

try:
    import matplotlib
except ImportError:
    sys.exit("plot.py: there is no matplotlib (Debian: python3-matplotlib)")
matplotlib.use("Agg")
matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "hoop", "font.size": 9,
                            "axes.grid": True, "grid.alpha": 0.3, "axes.spines.top": False,
                            "axes.spines.right": False, "legend.frameon": False})
from matplotlib import pyplot


def read(path, kind):
    """The lines of one kind, as dictionaries."""
    with open(path, newline="") as file:
        lines = map(json.loads, file) if path.endswith(".jsonl") else csv.DictReader(file)
        found = [line for line in lines if line["kind"] == kind]
    if not found:
        sys.exit(f"plot.py: {path} has no line of kind {kind}")
    return found


def column(lines, name):
    # What is not finite is null in JSON.
    return [float("nan") if line[name] is None else float(line[name]) for line in lines]


def save(figure, name):
    figure.tight_layout()
    figure.savefig(name + ".svg", metadata={"Date": None})
    figure.savefig(name + ".png", dpi=120)


def training(name, *paths):
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.2))
    for path in paths:
        train, test = read(path, "train"), read(path, "test")
        (line,) = left.plot(column(train, "updates"), column(train, "loss"), alpha=0.5, linewidth=0.8)
        left.plot(column(test, "updates"), column(test, "loss"), "o-", color=line.get_color(), markersize=3)
        right.plot(column(test, "updates"), [100 * v for v in column(test, "accuracy")], "o-", markersize=3,
                   label=path)
    left.set(title="loss: training, and test (dots)", xlabel="updates", yscale="log")
    right.set(title="accuracy of the test, %", xlabel="updates")
    right.legend()
    save(figure, name)


def accuracy(name, *rest):
    panels = []
    for word in rest:
        if "=" in word:
            panels[-1][1].append(word.split("=", 1))
        else:
            panels.append((word, []))
    figure, all_axes = pyplot.subplots(1, len(panels), figsize=(4.5 * len(panels), 3.2), squeeze=False, sharey=True)
    for axes, (title, lines) in zip(all_axes[0], panels):
        for label, path in lines:
            test = read(path, "test")
            axes.plot(column(test, "seconds"), [100 * v for v in column(test, "accuracy")], label=label)
        axes.set(title=title, xlabel="seconds")
        axes.legend()
    all_axes[0][0].set_ylabel("accuracy of the test, %")
    save(figure, name)


def exchange(name, path):
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    places = list(dict.fromkeys(row["place"] for row in rows))
    figure, all_axes = pyplot.subplots(1, len(places), figsize=(4.5 * len(places), 3.2), squeeze=False)
    for axes, place in zip(all_axes[0], places):
        here = [row for row in rows if row["place"] == place]
        for strategy in dict.fromkeys(row["strategy"] for row in here):
            mine = [row for row in here if row["strategy"] == strategy]
            axes.plot(column(mine, "ranks"), column(mine, "ms"), "o-", markersize=3, label=strategy)
        axes.set(title=place, xlabel="ranks", ylim=(0, None), xticks=sorted({int(row["ranks"]) for row in here}))
        axes.legend()
    all_axes[0][0].set_ylabel("ms of communication a step")
    save(figure, name)


if __name__ == "__main__":
    pictures = {"training": training, "accuracy": accuracy, "exchange": exchange}
    least = {"training": 4, "accuracy": 5, "exchange": 4}
    if len(sys.argv) < 2 or len(sys.argv) < least.get(sys.argv[1], 99):
        sys.exit(__doc__)
    pictures[sys.argv[1]](*sys.argv[2:])
