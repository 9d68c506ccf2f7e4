"""What the requests of every API contain: parts of messages, files, tools, forms of an answer, scores.

Takes them as a client wrote them. Returns text that the model can read, and values without an API's spelling.
It must not know any endpoint, and it fetches nothing.
"""
