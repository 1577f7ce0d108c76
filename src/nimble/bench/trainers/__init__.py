"""Who can take part where whole training steps are timed. As in `contestants`, but the model is a
`nimble.bench.training.Training`, and `run` takes one step and returns the loss."""
