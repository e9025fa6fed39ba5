"""One run told in many ways: a JSON document first, and from it the terminal, JUnit properties and HDR logs."""
