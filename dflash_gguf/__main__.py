"""``python -m dflash_gguf`` is the command ``dflash-gguf``."""

from dflash_gguf.cli import main

main()
