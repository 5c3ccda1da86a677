"""The asyncio proxy between clients and brokers, with the quota's state kept over restarts."""
