"""One contender a file."""
