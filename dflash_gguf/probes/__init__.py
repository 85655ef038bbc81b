"""What ``doctor`` looks at: each module holds the probes of one subject."""
