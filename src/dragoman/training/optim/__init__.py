"""The optimizers and the learning rate's schedules."""
