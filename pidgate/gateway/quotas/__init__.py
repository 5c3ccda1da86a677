"""Quotas while the gateway runs: the file's, what was set at run time, and who may ask and set."""
