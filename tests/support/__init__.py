"""What several tests share: fakes and simulated pairs."""
