"""What an operator needs around the APIs: who may use them, and how much.

Its rooms take the settings and requests before any API sees them. They must not know an API.
"""
