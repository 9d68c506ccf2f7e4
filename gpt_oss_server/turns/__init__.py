"""One turn of the model, whichever API asks for it.

A prompt, an engine, sampling and tools come in. Batches of turn events and a transcript go out. It must not
know how an API names or shows any of these.
"""
