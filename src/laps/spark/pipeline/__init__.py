"""From telemetry to tables, and from tables to a report."""
