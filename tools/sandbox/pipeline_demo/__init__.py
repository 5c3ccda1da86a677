"""The pipeline demo: a rogue among healthy producers is watched, found by the pipeline, and held by what it recommends.

Everything is real: the broker, the gateway, the clients, the jobs (processes, as people type them). What is claimed
at the end rests on the clients' journals, the broker's disk and the files that the jobs wrote.
"""
