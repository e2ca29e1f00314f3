"""The instructions as PTX has them: types, shapes, statements, arithmetic, limits."""
