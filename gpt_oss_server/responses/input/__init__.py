"""Input items: what a client sends, as parts of a conversation.

Items of a request come in. Segments for the prompt, pending calls, consents and loaded tools go out. It must
not know how the model is prompted.
"""
