"""Users of a snapshot when events carry hashes instead of user names (`redact: [user]`). PURE.

Other gateways, and events of the past, name a user by its hash. ProducerIdQuota moves the state that is stored under a
hash to the user when it first sees the user.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pidgate.events.redaction import UserNames
from pidgate.gateway.state.state_dir.snapshot import SavedUser


def under_their_names(names: UserNames, users: Sequence[SavedUser]) -> Iterator[SavedUser]:
    """Yield a snapshot's users under their real names, where known.

    A user may connect before the topic is read: its events carry the hash and count for the user from then on.
    A state saved under a hash with a known user becomes that user's state, unless the snapshot has one
    already.
    """
    there = {saved.state.user for saved in users}
    for saved in users:
        user = saved.state.user
        name = names.user_of(user)
        if name == user:
            names.meet(name)
            yield saved
        elif name not in there:
            yield saved._replace(state=replace(saved.state, user=name))
