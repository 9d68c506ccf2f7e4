"""One turn of the model, the same for every API.

Takes a plan (engine, sampling, built-in tools, binding) and a transcript that begins with the prompt. Returns
batches of turn events and records the turn in the transcript. It must not know how an API names or shows any
of these.
"""
