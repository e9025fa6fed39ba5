"""What a broker or a tool should do, in arithmetic alone: the truth that simulations and measurements are held against."""
