"""What speculation can be expected to bring: acceptance, expected tokens, speedup, best shapes.

Pure arithmetic on numbers that somebody else measured; knows no model and no engine.
"""
