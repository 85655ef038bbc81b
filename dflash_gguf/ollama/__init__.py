"""A running ollama, spoken to over HTTP: which one it is, models made in it, and one question asked."""
