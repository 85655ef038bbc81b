"""Files that forks or older versions of llama.cpp wrote, given the names that it reads today; tensor data stays."""
