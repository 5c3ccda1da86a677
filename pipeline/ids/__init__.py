"""Producer ids from the brokers' side: who handed out which (KIP-730), and how often their epochs rose (KIP-360)."""

from pipeline.ids.blocks import BLOCK, blocks_by_hour, fresh_ids, id_blocks
from pipeline.ids.epochs import EXHAUSTED_FROM, epochs

__all__ = ["BLOCK", "EXHAUSTED_FROM", "blocks_by_hour", "epochs", "fresh_ids", "id_blocks"]
