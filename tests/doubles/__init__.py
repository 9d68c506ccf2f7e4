"""What tests share: engines, servers, clients and tools that behave as a test decides, and helpers."""
