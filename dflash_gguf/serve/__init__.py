"""An OpenAI-compatible server over one session (extra ``serve``)."""
