"""What a gateway keeps on disk beside the events topic, or without one: snapshots and journals."""

from gateway.state_dir.directory import Loaded, StateDir
from gateway.state_dir.lock import LOCK_FILE, StateDirInUse

__all__ = ["LOCK_FILE", "Loaded", "StateDir", "StateDirInUse"]
