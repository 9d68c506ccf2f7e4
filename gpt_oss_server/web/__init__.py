"""The playground: a page that chats with the served model and shows every token.

Takes nothing but the requests of browsers. Returns the files of `static/`, which use the public API like any
other client. It must not know the model, the API or any other room.
"""
