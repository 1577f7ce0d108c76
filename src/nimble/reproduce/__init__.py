"""What others have published, beside what the modelled GPU predicts."""
