"""Results as HTML pages that a person can read: one file each, without any request to elsewhere."""
