"""Judgement of measurements: objectives, the verdict, the peak search."""
