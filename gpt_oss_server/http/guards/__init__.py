"""The layers around the routes: allowed host names and web pages, the key of a request, and its limits.

Takes a request's scope. Refuses it before a route runs, or lets it pass. It must not know an API.
"""
