"""The simulator of the metadata quorum: `tidelog simulate --consensus`."""
