"""The traces API: everything that is known of a response, down to its tokens."""
