"""A track at this relay: who publishes it, who subscribes, its streams, and what is kept of it."""
