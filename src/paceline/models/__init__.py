"""The models: a description, a matrix product, attention, one Transformer, the drafter, and loading."""
