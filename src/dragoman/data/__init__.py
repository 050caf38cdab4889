"""Files in, examples out: reading, auditing, splitting, tokenising and batching."""
