"""What a browser shows: the landing page at `/`, and the API reference at `/docs`.

Takes the served model and the application's routes; returns pages that load nothing from another host. It
must not know how any API works.
"""
