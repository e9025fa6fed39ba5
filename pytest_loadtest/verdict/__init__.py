"""What the measurements mean: objectives, the verdict, the peak search."""
