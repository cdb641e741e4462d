"""Sources of cheap guesses, one a file, found by name in the registry."""
