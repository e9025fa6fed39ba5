"""The contents of a message: envelope, payload, random draws, due time, and the columns of its
samples.
"""
