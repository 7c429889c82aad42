"""A recommender behind HTTP: what each request does, on the one thread that uses the models."""

from pathlib import Path
from typing import Any

from vicinal.core import listed, short
from vicinal.core.folders import MARKERS
from vicinal.core.identity import canonical_ids
from vicinal.estimators.recommend import Recommender
from vicinal.serve.measures import Measures
from vicinal.serve.requests import Add, Forget, Reason, Recommend, frame_of, read_body
from vicinal.serve.settings import ServeSettings
from vicinal.workflows.recommend import add_clicks, forget_users


class ServedRecommender:
    """One recommender of the server, made as :class:`vicinal.serve.served.ServedModel`.

    A change is a folder written anew, whole or not at all, before it is answered. Before each request the folder is
    looked at, so that every request sees all changes that were acknowledged before it.
    """

    def __init__(self, name: str, path: str, settings: ServeSettings, measures: Measures) -> None:
        self.name, self.path, self.most, self.measures = name, Path(path), settings.most_rows, measures
        self._seen: tuple[int, int] | None = None
        self._current()

    def _current(self) -> Recommender:
        status = (self.path / MARKERS["recommender"]).stat()
        if self._seen != (seen := (status.st_ino, status.st_mtime_ns)):
            self.model, self._seen = Recommender.load(self.path), seen
            self.measures.rows.labels(self.name).set(self.model.clicks_.nnz)
        return self.model

    def columns(self) -> dict[str, list[str]]:
        """Names of the columns that requests have, by what they are for."""
        return {"user": [self.model.user], "item": [self.model.item]}

    def close(self) -> None:
        """Nothing: each change is in the folder."""

    def recommend(self, content: bytes) -> dict[str, Any]:
        """Recommend items to users, by a recommender."""
        model, body = self._current(), read_body(Recommend, content, self.most)
        users = canonical_ids("users", body.users, distinct=True).tolist()
        items: dict[Any, list[dict[Any, Any]]] = {user: [] for user in users}
        for row in model.recommend(users, body.k, among=body.among).to_dict("records"):
            items[row.pop("user")].append(row)
        return {"recommendations": [{"user": user, "items": rows} for user, rows in items.items()]}

    def explain(self, content: bytes) -> dict[str, Any]:
        """Give the reasons of pairs of a user and an item: shares that sum to the score."""
        model, body = self._current(), read_body(Reason, content, self.most)
        answers = []
        for place, row in enumerate(body.rows):
            if set(row) != {model.user, model.item}:
                wish = f"the columns {short(model.user)} and {short(model.item)}"
                raise ValueError(f"rows: expected {wish} in row {place}, got {listed(row, 200)}")
            reasons = model.explain(row[model.user], row[model.item], people=body.people)
            tables = {name: getattr(reasons, name).to_dict("records") for name in ("clicks", "neighbors", "people")}
            answers.append({**row, "score": reasons.score, "by": reasons.by, **tables})
        return {"reasons": answers}

    def add(self, content: bytes) -> dict[str, Any]:
        """Add clicks, or rows of items or of users; they are on disk when this returns."""
        body = read_body(Add, content, self.most)
        kinds = {name: kind for kernel in self._current().kernels_.values() for name, kind in kernel.columns.items()}
        count, model = add_clicks(self.path, frame_of(body.rows, kinds))
        return {"added": count, "rows": model.clicks_.nnz}

    def forget(self, content: bytes) -> dict[str, Any]:
        """Remove users, with their clicks and columns, from every file of the folder."""
        count, model = forget_users(self.path, read_body(Forget, content, self.most).ids)
        return {"forgotten": count, "rows": model.clicks_.nnz}

    def health(self) -> dict[str, Any]:
        """Task, and numbers of clicks, users and items."""
        model = self._current()
        sizes = {"users": len(model.users_), "items": len(model.items_)}
        return {"task": "recommendation", "rows": model.clicks_.nnz, **sizes}
