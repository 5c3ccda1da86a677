"""Producer ids from the brokers' side: who handed out which (KIP-730), and how often their epochs rose (KIP-360)."""

from pidgate.pipeline.ids.blocks import BLOCK, blocks_by_hour, fresh_ids, id_blocks
from pidgate.pipeline.ids.epochs import EXHAUSTED_FROM, epochs

__all__ = ["BLOCK", "EXHAUSTED_FROM", "blocks_by_hour", "epochs", "fresh_ids", "id_blocks"]
