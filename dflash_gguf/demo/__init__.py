"""The small pair that works with no network: a carried drafter, and a target that a package ships."""
