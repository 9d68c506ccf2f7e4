"""The error of a patch."""


class PatchError(ValueError):
    """The patch cannot be applied, and nothing was changed. The message is a sentence for the model."""
