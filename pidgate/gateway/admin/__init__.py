"""The admin address: health, metrics, and the quotas over HTTP."""
