"""Refusals of SASL, delegation tokens and SCRAM credentials, where the gateway logged in for the client. PURE."""

from typing import Final

from pidgate.protocol import codec
from pidgate.protocol.errors import ErrorCode
from pidgate.protocol.frames import Buffer
from pidgate.protocol.headers import RequestHead

_ALTER_SCRAM: Final = 51
_REASON: Final = "the gateway has logged in to this broker for its clients"

_REFUSED: Final[dict[int, tuple[int, dict[str, object]]]] = {
    17: (ErrorCode.ILLEGAL_SASL_STATE, {"mechanisms": []}),  # SaslHandshake
    36: (ErrorCode.ILLEGAL_SASL_STATE, {"error_message": _REASON}),  # SaslAuthenticate
    38: (ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, {}),  # CreateDelegationToken
    39: (ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, {}),  # RenewDelegationToken
    40: (ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, {}),  # ExpireDelegationToken
    41: (ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, {"tokens": []}),  # DescribeDelegationToken
    50: (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, {"error_message": _REASON, "results": []}),
    _ALTER_SCRAM: (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, {}),
}
"""API key: error code and the other fields of the response that have no usable default."""


def refuse_credentials(buf: Buffer, head: RequestHead) -> bytes:
    """Return the framed refusal of a request of CREDENTIAL_APIS. Raises as codec.decode_request."""
    code, fields = _REFUSED[head.api_key]
    answer = codec.message_class(head.api_key, "response")
    version = head.api_version
    if head.api_key != _ALTER_SCRAM:
        return codec.encode_response(
            head.correlation_id, answer(version=version, error_code=int(code), **fields)
        )
    # AlterUserScramCredentials has an error for each user, and none for the whole.
    asked = codec.decode_request(buf, head)
    names = dict.fromkeys(each.name for each in (*asked.deletions, *asked.upsertions))
    result = answer.AlterUserScramCredentialsResult
    results = [
        result(version=version, user=name, error_code=int(code), error_message=_REASON) for name in names
    ]
    return codec.encode_response(head.correlation_id, answer(version=version, results=results))
