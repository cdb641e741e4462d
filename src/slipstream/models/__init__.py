"""Models by name: files, tokenizers, and the backends that run them behind one protocol."""
