"""A drafter for a GGUF target, trained on the target's own answers. The one user of PyTorch, which is an extra."""
