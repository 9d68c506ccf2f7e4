"""What an operator sees of a server: health, logs, figures for Prometheus, OpenTelemetry's spans and metrics.

Takes the runs, requests and stores that it observes; only the application imports it.
"""
