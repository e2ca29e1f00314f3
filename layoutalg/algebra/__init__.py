"""Operations on tuples of iters: group, tile, slice, pack, invert, print."""
