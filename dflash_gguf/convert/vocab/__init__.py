"""A Hugging Face tokenizer as the ``tokenizer.*`` keys that llama.cpp's converter writes."""
