"""What pytest calls: options, hooks, fixtures. Forwards, decides nothing."""
