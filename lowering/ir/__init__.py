"""The intermediate representation: operations, indices, buffers and registers."""
