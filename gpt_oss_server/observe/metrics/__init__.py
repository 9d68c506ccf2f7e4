"""The server's figures for Prometheus, at `/metrics`; `table` has a row for each.

Counts and histograms are plain Python, on the event loop; prometheus_client only writes them out. It must not
change an answer, nor cost anything for each token but one reading of the clock for each step.
"""
