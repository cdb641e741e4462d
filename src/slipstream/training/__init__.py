"""Training of drafters: data from the target itself, losses that are acceptance, and a trainer.

Nothing here is imported by the engine. ``data`` modules need numpy only; networks and the trainer
need torch (``pip install 'slipstream[train]'``).
"""
