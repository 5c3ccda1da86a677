"""kafka-python's waiting for the node of a request, and the requests that it loses by it."""

from __future__ import annotations

from tests.simulator.clients.one_at_a_time import OneAtATime, Request


class KafkaPythonRequests(OneAtATime):
    """Waits otherwise for a node than Java does, and loses a request whose coordinator is not ready."""

    def try_now(self, request: Request, now_s: float) -> None:
        """`_maybe_send_pending_request` and `await_ready`.

        A connection that is being made is waited for. One that is paused (throttled, or with five requests in flight)
        is given one turn of the selector. Then a request to the coordinator is dropped: it was taken from the queue,
        and only one without any target is put back.
        """
        node, client = self.target, self.client
        assert node is not None
        if self.is_ready(node, now_s):
            self.current = None
            self.send(request, node)
        elif node.dialling is not None or (node.connection is not None and not node.is_up):
            if now_s < self.give_up_s:
                client.wake_at(self.give_up_s)
            else:
                self._give_up(request)
        elif node.is_up and not self._has_waited:
            self._has_waited = True
            if node.throttled_until_s > now_s:
                client.wake_at(node.throttled_until_s)
        elif not node.is_up and not self._has_dialled:
            self._has_dialled = True
            client.connect(node, now_s)
            if node.dialling is None:
                self._give_up(request)
        else:
            self._give_up(request)

    _has_waited = False
    _has_dialled = False

    def go(self, request: Request, now_s: float) -> None:
        self._has_waited = self._has_dialled = False
        super().go(request, now_s)

    def _give_up(self, request: Request) -> None:
        self.current = None
        if self.needs_coordinator(request):
            self.look_up()
            if self.client.is_traced:
                self.client.note(f"drops {request.kind.name}")
        else:
            self.put(request)

    def lost(self, request: Request) -> None:
        """Only an error of the connection is tried again; after a time-out the producer is of no more use."""
        if self.client.lost_by == "timeout":
            self.client.is_of_no_use("could not execute transactional request for unknown reasons")
            request.finish(self.client.told.fatal)
        else:
            super().lost(request)
