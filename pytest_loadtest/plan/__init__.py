"""Profile × workers × scale → a plan: phases, the assignment of each worker, and the needs."""
