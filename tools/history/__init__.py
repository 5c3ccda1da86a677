"""Synthetic history: days of events from a simulated fleet, with ground truth labels."""
