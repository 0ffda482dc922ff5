"""Looking into relays from outside, over the admin API: what is there, and why it is so."""
