"""Numbers and symbols: what an extent, a stride or a coordinate may be."""
