"""Samples → measurements, by one Spark session: the only place that imports pyspark."""
