"""Requests of ApiVersions v5, which name the cluster and the node that a connection is meant for (KIP-1242)."""

from pidgate.protocol.frames import encode_string, framed


def api_versions(version: int, meant: bytes = b"", tags: bytes = b"\x00") -> bytes:
    """Return a framed request of software `java` `4.4`; `meant` stands behind that."""
    head = (18).to_bytes(2, "big") + version.to_bytes(2, "big") + b"\x00\x00\x00\x07\x00\x02me\x00"
    return framed(
        head, encode_string("java", flexible=True), encode_string("4.4", flexible=True), meant, tags
    )


def meant(cluster: str | None, node_id: int) -> bytes:
    """Return the two fields ClusterId and NodeId."""
    name = b"\x00" if cluster is None else encode_string(cluster, flexible=True)
    return name + node_id.to_bytes(4, "big", signed=True)
