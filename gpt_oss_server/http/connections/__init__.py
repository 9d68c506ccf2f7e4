"""The connections that carry HTTP and WebSockets: uvicorn's, corrected, with limits of size, time and number.

Takes bytes from uvicorn. Passes requests and messages to the application, and refuses what exceeds a limit.
It must not know an endpoint.
"""
