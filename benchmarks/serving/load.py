"""Load on a running server, open loop: requests are sent at their times, whether earlier ones were answered or not.

python benchmarks/serving/load.py FOLDER    # of fit_models.py; writes benchmarks/results/serving.json
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
from fit_models import numbers, texts

from vicinal.estimators import load_model

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "benchmarks" / "results" / "serving.json"
TOKEN = {"Authorization": "Bearer secret"}


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


async def throughput(address, rows, size=32, batches=40, at_once=4):
    """Rows a second in batches, some at once."""
    gate = asyncio.Semaphore(at_once)
    async with httpx.AsyncClient(base_url=address, timeout=120) as client:

        async def one(start):
            async with gate:
                answer = await client.post("/predict", json={"rows": rows[start : start + size]})
                assert answer.status_code == 200

        begun = time.perf_counter()
        await asyncio.gather(*(one(i * size) for i in range(batches)))
        return round(size * batches / (time.perf_counter() - begun))


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


async def malformed(address, count=1000):
    """How many of so many malformed requests got a status from 400 to 499 and one sentence."""
    rng, good = np.random.default_rng(0), json.dumps({"rows": rows_of(numbers(1, 9)[0])}).encode()
    told = 0
    async with httpx.AsyncClient(base_url=address, timeout=60) as client:
        for _ in range(count):
            body = bytearray(good)
            for _ in range(rng.integers(1, 4)):
                body[rng.integers(len(body))] = rng.integers(256)
            body = bytes(body)[: rng.integers(1, len(body))]
            answer = await client.post(
                rng.choice(["/predict", "/explain", "/search", "/add"]), content=body, headers=TOKEN
            )
            error = answer.json().get("error", "")
            told += 400 <= answer.status_code < 500 and ": expected " in error and "\n" not in error
    return told


def main(folder):
    place, result = Path(folder), {"load_before": os.getloadavg()[0]}
    frame = numbers(1500, 5)[0]
    server = Server(place / "numbers")
    asyncio.run(open_loop(server.address, [{"rows": [row]} for row in rows_of(frame)[:100]], 25))  # warm
    bodies = [{"rows": [row]} for row in rows_of(frame)[:800]]
    result["numbers"] = quantiles(asyncio.run(open_loop(server.address, bodies, 50)))
    result["numbers"]["rows_a_second_in_batches_of_32"] = asyncio.run(throughput(server.address, rows_of(frame)))
    print(json.dumps(result), flush=True)
    result["malformed"] = {"requests": 1000, "answered_4xx_with_a_sentence": asyncio.run(malformed(server.address))}
    result["malformed"]["alive_after"] = httpx.get(server.address + "/health").status_code == 200
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
