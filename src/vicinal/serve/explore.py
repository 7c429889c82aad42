"""``vicinal explore``: the page of one model."""

from vicinal.serve.closed import ClosedPage
from vicinal.workflows.explore import CHANGES, LOOKS


class ExplorePage(ClosedPage):
    """A server for the page of one explorer; see :class:`vicinal.serve.closed.ClosedPage`."""

    name = "explore"
    questions = (*LOOKS, "queries", "query", *CHANGES, "changed")

    def refresh(self) -> None:
        """Take over what others have changed."""
        self.answerer.version()
