"""Who sends when: the intended time of every message, phases, changes, topology, the plan."""
