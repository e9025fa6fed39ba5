"""What is sent, and one message's record."""
