"""What libllama's loader and graphs demand of a file, asked of its header before anything native sees it."""
