"""State kept on disk, beside the events topic or without one: snapshots and journals."""

from pidgate.gateway.state.state_dir.directory import Loaded, StateDir
from pidgate.gateway.state.state_dir.lock import LOCK_FILE, StateDirInUse

__all__ = ["LOCK_FILE", "Loaded", "StateDir", "StateDirInUse"]
