"""The numbered scenarios: their loads, what is measured of them, and what has to be reached."""
