"""What the project ships for operators: containers, units, charts, and configurations of proxies."""
