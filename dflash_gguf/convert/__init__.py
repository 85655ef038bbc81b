"""From a drafter's checkpoint to a GGUF: checkpoint, specification, plan, rows, file."""
