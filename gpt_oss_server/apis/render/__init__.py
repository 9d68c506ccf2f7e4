"""The exact prompt of a request of any API.

Takes a body as the API takes it. Returns the tokens that the model would be shown; nothing is generated or
stored. It knows of each API only its service.
"""
