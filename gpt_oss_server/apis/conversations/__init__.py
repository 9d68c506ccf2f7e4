"""The conversations API: conversations that are kept, and their items."""
