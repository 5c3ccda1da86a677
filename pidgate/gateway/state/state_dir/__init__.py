"""State kept on disk, beside the events topic or without one."""

from pidgate.gateway.state.state_dir.directory import Loaded, StateDir
from pidgate.gateway.state.state_dir.lock import LOCK_FILE, StateDirInUse
from pidgate.gateway.state.state_dir.snapshot import About

__all__ = ["LOCK_FILE", "About", "Loaded", "StateDir", "StateDirInUse"]
