"""Published measurements of training steps, and what is fitted to them."""
