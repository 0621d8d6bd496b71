"""The cluster's metadata: records, the immutable image they make, and their log."""
