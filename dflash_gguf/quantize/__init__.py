"""Types and blocks: which tensor gets which type, and the native threads that make the blocks."""
