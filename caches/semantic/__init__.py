"""The tier that also answers a question which only means the same as one answered before."""
