"""The model hub: names of repositories, what they hold, and their files or parts of them, in the shared cache.

`huggingface_hub` does the work. What knows of files alone: ``spec.py`` reads a repository's name, ``client.py`` lists
and downloads (a large file by ``blobs.py``), ``ranges.py`` reads parts of files that stay where they are, ``upload.py``
puts files there, ``errors.py`` says in a sentence what went wrong and what to do. What knows of models, and of the
packages that read and convert them: ``gguf_choice.py`` chooses by names and ``pairs.py`` by headers too, ``models.py``
is what was chosen, ``conversions.py`` makes a drafter of safetensors, ``pretrained.py`` serves ``from_pretrained``.
"""
