"""What a relay says about itself, as tracks of record batches."""
