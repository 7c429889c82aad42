"""``--engine``: batches of a table, or fits of ``compare``, in several processes on this machine or a cluster."""

import contextlib
import itertools
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from vicinal.core import check_choice
from vicinal.core.checks import check_integer, optional_import, short_text
from vicinal.core.folders import CHANGES, SUMS, sha256
from vicinal.core.progress import Log
from vicinal.workflows.predict import AnswerSettings, answer_rows, load_predictor, made_rows

ENGINES = ("ray",)
"""Engines that predict batches outside this process."""

FITTING = ("joblib", "ray")
"""Engines that run the fits of a comparison outside this process."""

_AHEAD = 2
"""Batches sent to each worker at a time, so that it does not wait for the next."""


class BatchPredictor:
    """The model of a worker; its bank is memory-mapped, so that all workers on a machine share it.

    Args:
        folder: of the model, as this machine sees it.
        named: ``index`` and ``encoders``, see :func:`vicinal.estimators.load_model`.
        digest: the :func:`model_digest` of the folder.

    Raises:
        ValueError: if the model in the folder has changed.
    """

    def __init__(
        self, folder: Path, root: Path | None, settings: AnswerSettings, named: Mapping[str, Any], digest: list[str]
    ) -> None:
        self.model, self.settings = load_predictor(folder, **named, several=True), settings
        self.model.root = root
        if model_digest(folder) != digest:
            raise ValueError(f"model: expected {folder.name} to stay while it predicts, got another one; try again")

    def predict(self, frame: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
        """The predictions of a batch as ``vicinal predict`` writes them, and the lines for its log."""
        lines: list[str] = []
        answers = answer_rows(self.model, made_rows(self.model, frame), lines.append, **self.settings)
        return answers.flat(), lines


def model_digest(folder: Path) -> list[str]:
    """Digests that change with the files of a model and with its journal."""
    return [sha256(folder / name) for name in (SUMS, CHANGES) if (folder / name).is_file()]


def check_engine(engine: str | None, workers: int | None, engines: Sequence[str] = ENGINES) -> int | None:
    """The number of workers; None: only this process.

    Raises:
        ValueError: for an unknown engine, one that is not installed, or workers without an engine.
    """
    if engine is None:
        if workers is not None:
            raise ValueError(f"workers: expected none without an engine, got {workers}; say --engine {engines[0]}")
        return None
    check_choice("engine", engine, engines)
    if engine == "ray":
        optional_import("engine", "ray", "ray")
    return check_integer("workers", (os.cpu_count() or 1) if workers is None else workers)


def predicted_by_ray(
    predictor: tuple[Any, ...], frames: Iterable[pd.DataFrame], workers: int, log: Log
) -> Generator[pd.DataFrame, None, None]:
    """Predictions of batches ``frames``, in order, by ``workers`` actors of Ray, each a :class:`BatchPredictor`.

    Ray is started on this machine and stopped at the end, unless it is running already. ``RAY_ADDRESS`` names a
    cluster instead, whose machines must see the model folder under the same path. Each worker gets two batches at a
    time. Ray sends rows between its processes as pickles.
    """
    with _ray(workers) as ray:
        actors = [ray.remote(num_cpus=1)(BatchPredictor).remote(*predictor) for _ in range(workers)]
        try:
            waiting: deque[Any] = deque()
            for frame, actor in zip(frames, itertools.cycle(actors), strict=False):
                if len(waiting) == _AHEAD * workers:
                    yield _answered(_result(ray, waiting.popleft()), log)
                waiting.append(actor.predict.remote(frame))
            while waiting:
                yield _answered(_result(ray, waiting.popleft()), log)
        finally:
            for actor in actors:
                ray.kill(actor)


def _answered(answer: tuple[pd.DataFrame, list[str]], log: Log) -> pd.DataFrame:
    for line in answer[1]:
        log(line)
    return answer[0]


@contextlib.contextmanager
def _ray(workers: int) -> Iterator[Any]:
    """Ray, started with so many processors (or connected to ``RAY_ADDRESS``) and stopped, unless it runs already."""
    ray = optional_import("engine", "ray", "ray")
    started = not ray.is_initialized()
    if started:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent that the user did not ask for
        local = {} if os.environ.get("RAY_ADDRESS") else {"num_cpus": workers}
        ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR", **local)
    try:
        yield ray
    finally:
        if started:
            ray.shutdown()


def _result(ray: Any, reference: Any) -> Any:
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as wrong:  # whose message is the traceback of the worker
        raise wrong.cause from None
    except (ray.exceptions.RayActorError, ray.exceptions.WorkerCrashedError) as wrong:
        cause = getattr(wrong, "cause", None) or wrong.__cause__
        raise OSError(f"engine: expected workers that last, got one that ended: {short_text(wrong)}") from cause


def done_together(
    engine: str, workers: int, works: Sequence[Callable[[], Any]]
) -> Generator[tuple[int, Any], None, None]:
    """Results of independent ``works`` as they finish, so many at a time, each with the position of its job.

    Workers are processes of this machine ("joblib"), or tasks of Ray, here or on a cluster whose machines see the same
    files under the same paths. Jobs and results go between processes as pickles. After an error no more jobs start.
    """
    if engine == "ray":
        yield from _done_by_ray(workers, works)
        return
    from joblib import Parallel, delayed  # it takes a while to import

    parallel = Parallel(n_jobs=workers, return_as="generator_unordered", batch_size=1, pre_dispatch="n_jobs")
    yield from parallel(delayed(_placed)(place, work) for place, work in enumerate(works))


def _placed(place: int, work: Callable[[], Any]) -> tuple[int, Any]:
    return place, work()


def _done_by_ray(workers: int, works: Sequence[Callable[[], Any]]) -> Generator[tuple[int, Any], None, None]:
    with _ray(workers) as ray:
        task, left = ray.remote(num_cpus=1, max_retries=0)(_placed), deque(enumerate(works))
        running: list[Any] = []
        try:
            while left or running:
                while left and len(running) < workers:
                    running.append(task.remote(*left.popleft()))
                (ended,), running = ray.wait(running, num_returns=1)
                yield _result(ray, ended)
        finally:
            for reference in running:
                ray.cancel(reference, force=True)
