"""Gang scheduling for xdist: ordinary tests by the scheduler that the user chose, then every load
test on all workers at once.

xdist calls it in the controller's main loop. The user's scheduler is wrapped, not replaced: it sees
only ordinary tests, through proxies of the nodes whose ``shutdown`` means "no more ordinary tests
for this node". Such a node gets all load tests, in collection order, and then the real shutdown,
because xdist's worker starts a test only when it has the next item or the shutdown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


class NodeProxy:
    """Stands for a node in the wrapped scheduler: translates indexes, delays the shutdown."""

    def __init__(self, node: Any, gang: GangScheduling) -> None:
        self.node = node
        self._gang = gang
        self.drained = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.node, name)

    @property
    def shutting_down(self) -> bool:
        return self.drained or bool(self.node.shutting_down)

    def send_runtest_some(self, indices: Sequence[int]) -> None:
        self.node.send_runtest_some([self._gang.ordinary[i] for i in indices])

    def send_steal(self, indices: Sequence[int]) -> None:
        self.node.send_steal([self._gang.ordinary[i] for i in indices])

    def shutdown(self) -> None:
        if not self.drained:
            self.drained = True
            self._gang.drained(self.node)


class GangScheduling:
    """xdist's ``Scheduling`` protocol, wrapped around another scheduler.

    :param load_items: returns the indexes of the load tests, once the first worker has collected.
    :param led: returns whether a node is the lead of a current run of an item.
    """

    def __init__(
        self,
        inner: Any,
        config: Any,
        load_items: Callable[[], Sequence[int]],
        led: Callable[[Any, int], bool],
    ) -> None:
        self.config = config  # pytest-rerunfailures reads it
        self._inner = inner
        self._load_items = load_items
        self._led = led
        self._proxies: dict[Any, NodeProxy] = {}
        self._collections: dict[Any, list[str]] = {}
        self._todo: dict[Any, list[int]] = {}
        self._done: set[int] = set()
        self.ordinary: list[int] = []
        self._local: dict[int, int] | None = None

    @property
    def nodes(self) -> list[Any]:
        return list(self._proxies)

    @property
    def collection_is_completed(self) -> bool:
        return bool(self._inner.collection_is_completed)

    @property
    def has_pending(self) -> bool:
        return bool(self._inner.has_pending) or any(self._todo.values())

    @property
    def tests_finished(self) -> bool:
        if not (self.collection_is_completed and self._inner.tests_finished and self._proxies):
            return False
        # While load tests are left, a worker that dies must still be replaced.
        all_drained = all(proxy.drained for proxy in self._proxies.values())
        return all_drained and not any(self._todo.values())

    def add_node(self, node: Any) -> None:
        self._proxies[node] = NodeProxy(node, self)
        self._inner.add_node(self._proxies[node])

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        load_items = set(self._load_items())
        self._collections[node] = list(collection)
        if self._local is None:
            self.ordinary = [i for i in range(len(collection)) if i not in load_items]
            self._local = {index: i for i, index in enumerate(self.ordinary)}
        if self.ordinary or not self.collection_is_completed:
            # xdist's schedulers reject a replacement if there are no tests.
            ordinary = [collection[i] for i in self.ordinary]
            self._inner.add_node_collection(self._proxies[node], ordinary)

    def schedule(self) -> None:
        self._inner.schedule()
        if not self.ordinary:
            for proxy in self._proxies.values():
                proxy.shutdown()

    def drained(self, node: Any) -> None:
        """Send the load tests to a node that has no more ordinary ones."""
        self._todo[node] = [index for index in self._load_items() if index not in self._done]
        if self._todo[node]:
            node.send_runtest_some(list(self._todo[node]))
        node.shutdown()

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        if item_index in self._todo.get(node, ()):
            self._todo[node].remove(item_index)
            self._done.add(item_index)
        else:
            self._inner.mark_test_complete(self._proxies[node], self._index(item_index), duration)

    def mark_test_pending(self, item: str) -> None:
        # pytest-rerunfailures handles it: xdist's own schedulers raise it too.
        raise NotImplementedError

    def remove_pending_tests_from_node(self, node: Any, indices: Sequence[int]) -> None:
        self._inner.remove_pending_tests_from_node(
            self._proxies[node], [self._index(i) for i in indices]
        )

    def remove_node(self, node: Any) -> str | None:
        """Return the id of the test that the lost node crashed in.

        It is an ordinary one, or the load test that the node led.
        """
        proxy = self._proxies.pop(node)
        todo = self._todo.pop(node, [])
        crashed = self._inner.remove_node(proxy) if proxy in self._inner.nodes else None
        if crashed or not todo:
            return crashed
        if self._led(node, todo[0]):
            self._done.add(todo[0])
            return self._collections[node][todo[0]]
        return None

    def _index(self, item_index: int) -> int:
        assert self._local is not None
        return self._local[item_index]
