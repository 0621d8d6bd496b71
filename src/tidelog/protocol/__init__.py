"""The wire: primitive types, one schema module per API, headers, record batches, errors."""
