"""Randomised worlds: clusters, queues, jobs, faults and commands drawn from a seed, checked after every round."""
