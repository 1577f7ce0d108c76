"""Look at plans: in words, on a timeline, as a picture."""
