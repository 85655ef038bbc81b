"""The Modelfile by which ``ollama create`` joins a target and its drafter: GGUF files, or folders of safetensors."""
