"""Items: what each kind of a conversation's items is, from its declaration to its events."""
