"""The health of a server: whether it lives, whether it takes requests, and whether its engine can generate.

Takes an engine and checks it from time to time; a signal begins the drain. Answers `/live`, `/ready` and
`/health`. It must not know an API.
"""
