"""Measurements from samples, by one Spark session; the only package that imports pyspark."""
