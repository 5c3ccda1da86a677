"""pidgate: a Kafka quota gateway.

    protocol, quota, events       pure: bytes, decisions, published events
    gateway                       the proxy
    findings, who, load, pipeline analyse and stress a gateway
    cli                           the command `pidgate`

Files of this folder itself are shared by all parts: units (durations, sizes, addresses, numbers), version,
open_files.
"""
