"""The topic of events: written, followed, and read back into the quota's state. The only home of aiokafka here."""
