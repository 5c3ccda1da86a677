"""The admin address: health, metrics, and quotas over HTTP."""
