"""The prompts that the demo's drafter is trained on, as JSON lines on stdout."""

from __future__ import annotations

import json

from dflash_gguf.demo.prompts import demo_prompts

if __name__ == "__main__":
    for text in demo_prompts():
        print(json.dumps({"prompt": text}))
