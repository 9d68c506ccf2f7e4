"""What a browser shows: the playground at `/`, and the API reference at `/docs`.

Takes the served model's name and facts, and the requests of browsers. Returns pages that load nothing from
another host; they use the public API like any other client. It must not know how any API works.
"""
