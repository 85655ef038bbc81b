"""The model hub: names of repositories, what they hold, and their files or parts of them, in the shared cache.

`huggingface_hub` does the work; no other package of ours knows it. ``client.py`` lists and downloads, ``ranges.py``
reads parts of files that stay where they are, ``errors.py`` says in a sentence what went wrong and what to do.
"""
