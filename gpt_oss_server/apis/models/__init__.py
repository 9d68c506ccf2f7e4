"""The models that this server serves, as OpenAI's API lists them."""
