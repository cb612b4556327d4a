"""The functions of Cyreal 0.2.x that set the state of a policy."""

from millstream import set_loader_policy_state, set_source_policy_state

__all__ = ["set_loader_policy_state", "set_source_policy_state"]
