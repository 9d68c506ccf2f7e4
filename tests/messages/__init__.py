"""The Messages API: requests, streams, conversations, tools that run here, and errors in its own form."""
