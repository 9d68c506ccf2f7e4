"""The content of messages, whichever API they came through.

Content parts, files and tool results come in, text that the model can read goes out. It must not know any
endpoint, and it fetches nothing.
"""
