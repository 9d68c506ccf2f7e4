"""What waits in a database: batches for their answers, and events for the addresses that they are told."""
