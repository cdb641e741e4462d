"""The loop and what stands around it: requests, scheduling, statistics and the public Engine."""
