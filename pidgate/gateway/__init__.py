"""The asyncio proxy: what speaks to clients and brokers, and keeps the quota's state over restarts and processes."""
