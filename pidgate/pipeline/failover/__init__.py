"""Model of broker heaps after one broker has died of producer ids.

kip.csv    KIP-936's example under its own rule: ids move with leadership, a broker dies above 200
held       ids and states that each user makes brokers hold, per hour
placement  each broker's share of a topic's states; quotas in force
loads      states per broker and hour under quotas: an upper bound of admissions per bucket
cascade    a heap and the deaths: hours, storms of reopening clients, reassignment
study      one question to the model; the quota that protects a heap
"""
