"""pidgate: a Kafka quota gateway. One package on the user's machine; its parts are links to the folders beside it.

protocol  quota  events   pure: bytes, decisions, what is published
gateway                   the proxy
who  load  pipeline       what studies, and what stresses, a gateway
sandbox                   real Kafka out of the package registries, and the demos
cli                       the command `pidgate`

Files of this folder itself are shared by all: units (durations, sizes, addresses, numbers), version, open_files.
"""
