"""One gateway in several processes: workers that serve clients, one holder of the quota's state, a supervisor."""
