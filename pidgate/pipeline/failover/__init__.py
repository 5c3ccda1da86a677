"""Model of broker heaps after one broker has died of producer ids.

kip.csv    KIP-936's example under its own rule: ids move with leadership, a broker dies above 200
by_id      ids by their hours; by_user: ids and states that each user makes brokers hold, per hour
loads      states per topic and hour under quotas: an upper bound of admissions per bucket; by_broker: on each broker
cascade    a heap and the deaths: hours, storms of reopening clients, reassignment
study      all quotas and scenarios through the model; the quota that protects a heap
words      tables and sentences for the operator
"""
