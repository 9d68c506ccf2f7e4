"""The generated pages of docs/reference. Each fact is taken from the one place where the code states it."""
