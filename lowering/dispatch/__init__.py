"""From a tile call to operations: predicates choose a variant, which addresses its operands."""
