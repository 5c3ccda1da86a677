"""The process of a gateway: its composition, its connections, its start and end."""
