"""The loop and what surrounds it: preparation, plan, schedule, precision, checkpoints, monitoring."""
