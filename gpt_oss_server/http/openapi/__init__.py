"""The OpenAPI document: what `/openapi.json` and the API reference at `/docs` show."""
