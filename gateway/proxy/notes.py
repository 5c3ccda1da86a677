"""What is remembered of a request until its answer comes, for the few APIs whose answer alone does not say. PURE."""

from __future__ import annotations

from pidgate.gateway.proxy.treatments import Treatment
from pidgate.gateway.quotas.kafka_api import describe_note
from pidgate.protocol import messages
from pidgate.protocol.sasl import SaslExchange


def note_of_request(
    treatment: Treatment, sasl: SaslExchange, buf: bytes | bytearray | memoryview, start: int, end: int
) -> object:
    """Look into a request of one of the noted treatments.

    SASL requests feed the exchange at once, since the mechanism and the name stand in the request;
    whether they are true is told by the answer. Raises MalformedFrame.
    """
    if treatment is Treatment.END_TXN:
        return messages.end_txn_request(buf, start, end)
    if treatment is Treatment.SASL_HANDSHAKE:
        sasl.handshake(messages.sasl_mechanism(buf, start, end))
    elif treatment is Treatment.SASL_AUTHENTICATE:
        sasl.client_token(messages.sasl_token(buf, start, end))
    elif treatment is Treatment.API_VERSIONS:
        return messages.client_software(buf, start, end)
    elif treatment is Treatment.DESCRIBE_QUOTAS:
        return describe_note(buf, start, end)
    return None
