"""The runner: models in libllama, the loop around the native core, chat templates and statistics."""
