"""Model of the other brokers' heaps when one dies of producer ids.

kip        the example of KIP-936 under its own rule: ids move with leadership, a broker dies above 200
held       which ids, and so which states, each user's past makes the brokers hold in each hour
placement  which broker holds which share of a topic's states; quotas in force
loads      states by broker and hour under quotas: what each bucket can have let in, at most
cascade    a heap, and who dies when: hours, deaths, storms of reopening clients, reassignment
study      one question put to the model; the quota that keeps a heap
"""
