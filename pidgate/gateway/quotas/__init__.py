"""Quotas at run time: from the file, changed through the API, reloaded, announced and explained."""
