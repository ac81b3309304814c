"""What is known beforehand of links that have rates: the parts that laws of serialisation and of queues share.

`cables` knows the cables of each arm, from bed.json; `judged` turns two numbers into an answer. The laws themselves
stand with the methods that are asked for them.
"""
