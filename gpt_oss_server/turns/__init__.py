"""One turn of the model, the same for every API.

A plan (engine, sampling, built-in tools, binding) and a transcript that begins with the prompt come in.
Batches of turn events go out, and the transcript has the turn. It must not know how an API names or shows any
of these.
"""
