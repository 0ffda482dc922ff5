"""The planner: for each track and region hub-and-spoke, or a Via, within what policies allow."""
