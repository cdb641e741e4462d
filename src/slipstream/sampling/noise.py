"""Counter-based random numbers: every draw has an address, so nothing can shift another draw.

Philox4x32-10 (Salmon et al., SC 2011) maps (key, counter) to 128 random bits. The key is the
request's seed; the counter spells out what the number is for. No generator, no state: changing k,
the drafter, the batch or a retry can't move anybody else's draw. Written in int64 array-API
arithmetic, so that numpy and torch give the same bits on any device.

Two kinds of address:

* ``pick(offset)`` belongs to (seed, position) alone. It is the noise of the plain sampler, and
  what the coupled rule shares between drafter and target.
* ``draft`` and ``accept`` also carry the cycle, named by the number of committed tokens at its
  start. A position may be drafted again in a later cycle after a rejection; a rule whose verdict
  looked at the old draw (block verification judges from the far end) must not meet it again.
"""
