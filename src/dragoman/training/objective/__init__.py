"""The loss of training, the terms beside the cross-entropy, and the decoder's inputs."""
