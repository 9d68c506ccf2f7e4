"""The Messages API, Anthropic's: a reader and a writer around a run of the Responses API.

Takes bodies of `POST /v1/messages` and the caller. Returns messages and their streams. A request becomes one
of the Responses API (`read`, `tools`), whose run samples it, and the run's events become a message's
(`write`). It must not know engines, prompts or stores.
"""
