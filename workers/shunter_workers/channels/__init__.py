"""Nodes that are reached by SSH: one connection each brings them up, and carries what they cannot send themselves.

duty        which nodes there are; a task for each, in one process a shard of jobs
channel     one node: connect, bootstrap, relay, shells; again when the connection is lost
bootstrap   probe, upload, start
seeding     files that many nodes need go up once
relay       the node's requests to the service, through the connection
keys        a job's own keys, sealed
"""
