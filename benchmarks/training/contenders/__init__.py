"""The contenders, each in a file of its own."""
