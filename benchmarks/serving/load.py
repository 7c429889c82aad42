"""Load on a running server, open loop: requests are sent at their times, whether earlier ones were answered or not.

Two models: numbers, 1e5 rows in the bank; texts by MiniLM, 2,000 rows. They are fitted if FOLDER has none.

    python benchmarks/serving/load.py FOLDER    # writes benchmarks/results/serving.json
"""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import numpy as np
import pandas as pd

from vicinal.estimators import NeighborRegressor, load_model

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "benchmarks" / "results" / "serving.json"
TOKEN = {"Authorization": "Bearer secret"}
WORDS = "a good bad fair old new small large house flat near far from sea park"


def numbers(rows, seed=0):
    """Eight columns of numbers and one of categories; the target is smooth in some of them."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(rows, 8)), columns=[f"x{i}" for i in range(8)])
    frame["town"] = rng.choice(["york", "bath", "leeds"], rows)
    price = np.sin(frame["x0"]) + frame["x1"] * frame["x2"] + (frame["town"] == "york")
    return frame, price.to_numpy() + rng.normal(0, 0.1, rows)


def texts(rows, seed=0):
    """Texts of twelve words; the target counts some of them."""
    rng = np.random.default_rng(seed)
    notes = [" ".join(rng.choice(WORDS.split(), 12)) for _ in range(rows)]
    return pd.DataFrame({"note": notes}), np.array([n.count("good") - n.count("bad") for n in notes], dtype=float)


def fit_models(place):
    """The two models that are served."""
    frame, price = numbers(100_000)
    model = NeighborRegressor(metric="kernel").fit(frame, price, ids=[f"r{i}" for i in range(len(frame))])
    model.notes_ = {"target": "price", "id": "id"}
    model.save(place / "numbers")
    frame, mood = texts(2000)
    model = NeighborRegressor(encoders={"note": "minilm"}, max_epochs=20).fit(frame, mood)
    model.notes_ = {"target": "mood"}
    model.save(place / "texts")


class Server:
    """``vicinal serve`` with two workers."""

    def __init__(self, folder, workers=2):
        environment = os.environ | {"VICINAL_TOKEN": "secret", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "vicinal", "serve", str(folder), "--port", "0", "--rate", "0"]
        self.process = subprocess.Popen(
            [*command, "--workers", str(workers)],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )
        self.address = re.search(r"http://\S+", self.process.stderr.readline())[0]
        while True:
            try:
                if httpx.get(self.address + "/health", timeout=30).status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.1)

    def stop(self, number=signal.SIGTERM):
        """The exit code."""
        os.killpg(self.process.pid, number) if number == signal.SIGKILL else self.process.send_signal(number)
        return self.process.wait()


async def open_loop(address, bodies, rate, headers=None, path="/predict"):
    """Seconds to answer of each request, counted from when it was due."""
    limits = httpx.Limits(max_connections=200, max_keepalive_connections=200)
    async with httpx.AsyncClient(base_url=address, timeout=60, limits=limits) as client:

        async def one(due, body):
            await asyncio.sleep(max(0, due - time.perf_counter()))
            answer = await client.post(path, json=body, headers=headers)
            assert answer.status_code == 200, answer.text
            return time.perf_counter() - due

        start = time.perf_counter() + 0.2
        return await asyncio.gather(*(one(start + i / rate, body) for i, body in enumerate(bodies)))


def quantiles(seconds):
    p50, p99 = np.quantile(seconds, [0.5, 0.99]) * 1000
    return {"p50_ms": round(float(p50), 1), "p99_ms": round(float(p99), 1), "requests": len(seconds)}


def rows_of(frame):
    return frame.to_dict("records")


async def adds_until_killed(server, frame, count, kill_after):
    acknowledged, run = [], time.time_ns()
    async with httpx.AsyncClient(
        base_url=server.address, timeout=60, limits=httpx.Limits(max_connections=None)
    ) as client:

        async def one(number, row):
            body = {"rows": [{**row, "id": f"{run}-{number}", "price": 1.0}]}
            answer = await client.post("/add", json=body, headers=TOKEN)
            if answer.status_code == 200:
                acknowledged.append(f"{run}-{number}")
                if len(acknowledged) == kill_after:
                    os.killpg(server.process.pid, signal.SIGKILL)

        await asyncio.gather(*(one(i, row) for i, row in enumerate(rows_of(frame)[:count])), return_exceptions=True)
    server.process.wait()
    return acknowledged


def main(folder):
    place, result = Path(folder), {"load_before": os.getloadavg()[0]}
    if not (place / "texts").is_dir():
        fit_models(place)
    frame = numbers(1500, 5)[0]
    server = Server(place / "numbers")
    asyncio.run(open_loop(server.address, [{"rows": [row]} for row in rows_of(frame)[:100]], 25))  # warm
    bodies = [{"rows": [row]} for row in rows_of(frame)[:800]]
    result["numbers"] = quantiles(asyncio.run(open_loop(server.address, bodies, 50)))
    print(json.dumps(result), flush=True)
    acknowledged = asyncio.run(adds_until_killed(server, frame, 1000, 300))
    there = load_model(place / "numbers").bank_.has(acknowledged)
    result["killed"] = {"adds": 1000, "acknowledged": len(acknowledged), "lost": int((~there).sum())}
    print(json.dumps(result), flush=True)
    server = Server(place / "texts")
    notes = rows_of(texts(700, 7)[0])
    asyncio.run(open_loop(server.address, [{"rows": [row]} for row in notes[:40]], 10))
    result["texts"] = quantiles(asyncio.run(open_loop(server.address, [{"rows": [row]} for row in notes[:300]], 20)))
    result["stopped_with"] = server.stop()
    result["load_after"] = os.getloadavg()[0]
    OUT.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main(sys.argv[1])
