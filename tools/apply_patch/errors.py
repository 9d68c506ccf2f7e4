"""What can be wrong with a patch."""


class PatchError(ValueError):
    """The patch cannot be applied, and nothing was changed. Its text is a sentence for the model."""
