"""``vicinal match --review``: the page of pairs to label."""

from vicinal.serve.closed import ClosedPage
from vicinal.workflows.review import Reviewer


class ReviewPage(ClosedPage):
    """A server for the page of one reviewer, which it closes; see :class:`vicinal.serve.closed.ClosedPage`."""

    name = "review"
    questions = ("now", "label", "undo", "again", "finish")

    def __init__(self, reviewer: Reviewer, port: int = 0) -> None:
        super().__init__(reviewer, port)
        reviewer.at_end = self.close
